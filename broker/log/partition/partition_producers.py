"""The producer states of a partition, and its last stable offset."""

from __future__ import annotations

from eoslog.broker.log.partition.append_waiters import AppendWaiters
from eoslog.broker.log.partition.durability import Durability
from eoslog.broker.log.partition.log import Log
from eoslog.broker.rules.producer_state import ProducerStates


class PartitionProducers:
    """The producers' states, and the holders that hold back readers of committed data."""

    def __init__(
        self, log: Log, durability: Durability, watch: AppendWaiters, states: ProducerStates
    ) -> None:
        self._log, self._durability, self._watch = log, durability, watch
        self.states = states
        self._held: dict[object, int] = {}  # by holder: where readers of committed data stop until it lets go

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed data stop: at the first record that is undecided or held back."""
        decided = self.states.last_stable_offset(self._durability.high_watermark)
        return max(min((decided, *self._held.values())), self._log.start)

    def hold_back(self, holder: object) -> None:
        """Keep the last stable offset where it is until the holder lets go. The high watermark may rise."""
        self._held.setdefault(holder, self.last_stable_offset)

    def let_go(self, holder: object) -> None:
        """Let readers see what the holder held back. Does nothing if it held nothing back."""
        if self._held.pop(holder, None) is not None:
            self._watch.stir()
