"""Committed outbox rows, from the Postgres write-ahead log to a broker."""
