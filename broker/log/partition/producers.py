"""What a partition knows of its producers, and up to where what they did is decided."""

from __future__ import annotations

from eoslog.broker.log.partition.durability import Durability
from eoslog.broker.log.partition.log import Log
from eoslog.broker.log.partition.watch import Watch
from eoslog.broker.rules.producer import ProducerStates


class Producers:
    """Their states, and who holds back readers of committed data."""

    def __init__(self, log: Log, durability: Durability, watch: Watch, states: ProducerStates) -> None:
        self._log, self._durability, self._watch = log, durability, watch
        self.states = states
        self._held: dict[object, int] = {}  # by whom: where readers of committed data stop until then

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed data stop: the first record that is undecided, or held back."""
        decided = self.states.last_stable_offset(self._durability.high_watermark)
        return max(min((decided, *self._held.values())), self._log.start)

    def hold_back(self, holder: object) -> None:
        """What is not stable yet stays so until the holder lets go: the high watermark does not wait."""
        self._held.setdefault(holder, self.last_stable_offset)

    def let_go(self, holder: object) -> None:
        """Readers may see what the holder held back; nothing happens if that is nothing."""
        if self._held.pop(holder, None) is not None:
            self._watch.stir()
