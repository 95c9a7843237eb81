"""The ``slots`` command."""

from slots.cli.command import app, main

__all__ = ["app", "main"]
