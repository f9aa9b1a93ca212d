"""Histories of the model: what may go wrong, how much of it, and the numbers that pick one history."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What may become of a request and of the process that sent it."""

    KILL = "applied, then the process is killed"
    WIPE = "the same to a driver, and its checkpoint is gone too"
    TIMEOUT_LOST = "never arrives, and the client gives up"
    TIMEOUT_DONE = "applied, but no answer comes and the client gives up"
    REPEAT = "applied, the answer is lost, and the client sends it again"
    SUSPEND = "the driver hangs before it; another one is started, and later this one wakes up"
    END = "the query is stopped: abort is called, while whoever is at work goes on"
    HANDOVER = "the same, and the other one has a new checkpoint: it begins where the group stands just now"
    EXPIRE = "before it, an open transaction times out: a participant's, or the sink's own"
    HANG = "the task hangs before it; another attempt is started, and later this one wakes up"
    LATE = "sent twice: one is answered, the other comes to the cluster at some later moment"
    RESTORE = "before it, the brokers are put back to an older copy; processes die with them, or live"
    FORGET = "the sink's own transaction ends; the node dies after its answer, and markers are lost"
    TIMEOUT_LATE = "the client gives up, and later it comes to the cluster all the same"
    KILLED_LATE = "the process is killed, and later it comes to the cluster all the same"


LATE = (Fault.LATE, Fault.TIMEOUT_LATE, Fault.KILLED_LATE)
DISTURBING = {Fault.END, Fault.SUSPEND, Fault.HANDOVER, Fault.HANG, *LATE}
"""Faults after which somebody or something else is still on its way."""
BY_ITSELF = tuple(kind for kind in Fault if kind not in (Fault.FORGET, Fault.RESTORE))
"""All but those of a cluster that breaks its word; histories with these have shapes of their own."""
AT_ONCE = tuple(kind for kind in BY_ITSELF if kind not in (Fault.HANG, *LATE))
"""Faults whose harm is done, or begins, where they strike: a history for each place of theirs. The others
strike again at any later moment: as many histories as there are pairs of places."""


class Choices:
    """Numbers picked so far: first those given, then what `fallback` picks, or 0."""

    def __init__(self, given: tuple[int, ...] = (), fallback: Callable[[int], int] | None = None) -> None:
        self.given, self.fallback = given, fallback
        self.made: list[tuple[int, int]] = []

    def pick(self, options: int) -> int:
        at = len(self.made)
        choice = 0
        if options > 1:
            choice = (
                self.given[at] if at < len(self.given) else self.fallback(options) if self.fallback else 0
            )
            self.made.append((choice, options))
        return choice

    def following(self) -> tuple[int, ...] | None:
        """The next history in the order of all histories; None after the last one."""
        made = list(self.made)
        while made and made[-1][0] + 1 >= made[-1][1]:
            made.pop()
        return (*(choice for choice, _ in made[:-1]), made[-1][0] + 1) if made else None


@dataclass(frozen=True)
class Shape:
    """What kind of histories.

    `spread`: any process may be next; else one runs as long as it can, and `switches` is how often two
    drivers that are awake take turns in the middle. `twice`: Spark calls every commit twice. `late_markers`,
    `last_epoch`, `keeps` (None: nobody asks it to), `tells_holder`, `verifies`: of the broker. `empty`:
    (batch, partition) without rows. `struck`: faults hit only requests whose label begins so. `replays`:
    what is lost is written again.
    """

    tv: int = 2
    batches: int = 2
    partitions: int = 2
    faults: int = 1
    kinds: tuple[Fault, ...] = (Fault.KILL, Fault.TIMEOUT_LOST, Fault.TIMEOUT_DONE)
    spread: bool = False
    switches: int = 0
    twice: bool = False
    last_epoch: int = 32_766
    late_markers: bool = False
    empty: frozenset[tuple[int, int]] = frozenset()
    struck: str = ""
    at_most_once: bool = False
    replays: bool = False
    keeps: bool | None = None
    tells_holder: bool = False
    verifies: bool = True
