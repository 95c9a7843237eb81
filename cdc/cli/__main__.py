"""Lets ``python -m cdc.cli`` be the command."""

from cdc.cli import main

main()
