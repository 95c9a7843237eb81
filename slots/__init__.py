"""Replication slots: what Postgres keeps for its consumers, and how much of it."""
