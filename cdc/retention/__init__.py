"""Outbox rows that are acknowledged and old enough are deleted, and nothing else is."""

from cdc.retention.background import Pruning
from cdc.retention.pruning import Retention, prune
from cdc.retention.report import TablePruned

__all__ = ["Pruning", "Retention", "TablePruned", "prune"]
