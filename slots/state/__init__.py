"""What replication slots are like, and what that means."""

from slots.state.causes import Cause, causes, stake
from slots.state.finding import Finding, Kind, worst
from slots.state.health import health, server_health
from slots.state.limits import LIMIT_NAMES, Level, Limits, Threshold
from slots.state.reading import Blocker, Reading, Server
from slots.state.slot import Slot, WalStatus
from slots.state.trend import (
    Budget,
    History,
    Trend,
    budget,
    is_replaced,
    time_to_loss_s,
)

__all__ = [
    "LIMIT_NAMES",
    "Blocker",
    "Budget",
    "Cause",
    "Finding",
    "History",
    "Kind",
    "Level",
    "Limits",
    "Reading",
    "Server",
    "Slot",
    "Threshold",
    "Trend",
    "WalStatus",
    "budget",
    "causes",
    "health",
    "is_replaced",
    "server_health",
    "stake",
    "time_to_loss_s",
    "worst",
]
