"""Bytes from the walsender in, committed rows out. Nothing here waits for anything."""
