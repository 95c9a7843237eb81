"""The ``cdc`` command."""

from cdc.cli.command import app, main

__all__ = ["app", "main"]
