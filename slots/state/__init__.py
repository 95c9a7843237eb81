"""What replication slots are like, and what that means."""

from slots.state.reading import Blocker, Reading, Server
from slots.state.slot import Slot, WalStatus

__all__ = ["Blocker", "Reading", "Server", "Slot", "WalStatus"]
