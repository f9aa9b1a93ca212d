"""Histories of the model: what may go wrong, how much of it, and the shapes that are run one by one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import NamedTuple


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


# -- shapes --------------------------------------------------------------------------------------
# The shapes of histories that are run one by one: those of the suite, the deeper ones of `make model`.

LOSSES = (Fault.KILL, Fault.TIMEOUT_LOST, Fault.TIMEOUT_DONE)
"""A process dies; a request is lost; its answer is lost."""
STRIKES = (*LOSSES, Fault.REPEAT, Fault.EXPIRE)
"""What strikes once, at one request."""


class Case(NamedTuple):
    """A shape, and how its histories may end."""

    name: str
    shape: Shape
    ends: frozenset[str] = frozenset({"whole"})


def _case(name: str, shape: Shape, *also: str) -> Case:
    return Case(name, shape, frozenset({"whole", *also}))


def _clusters() -> Iterator[tuple[str, bool | None, Shape]]:
    """Every kind of cluster: transaction.version, two-phase commit, markers that take their time."""
    for tv, keeps, late in product((1, 2), (None, True), (False, True)):
        name = f"TV{tv}, {'sealed' if keeps else 'not sealed'}{', late markers' if late else ''}"
        yield name, keeps, Shape(tv=tv, keeps=keeps, late_markers=late, tells_holder=bool(keeps) and late)


def _alter(shape: Shape, **changes: object) -> Shape:
    return Shape(**{**shape.__dict__, **changes})


def suite() -> list[Case]:
    """Bounded: about half a minute in all."""
    cases = []
    for name, keeps, cluster in _clusters():
        lost = () if keeps else ("lost",)
        cases += [
            _case(f"3 batches, one strike: {name}", _alter(cluster, batches=3, kinds=STRIKES), *lost),
            _case(
                f"3 batches, one loss, commit called twice: {name}",
                _alter(cluster, batches=3, kinds=LOSSES, twice=True),
            ),
        ]
    for name, keeps, cluster in _clusters():
        if (cluster.tv == 1) is (not cluster.late_markers):
            cases += [
                _case(f"2 batches, a driver hangs: {name}", _alter(cluster, kinds=(Fault.SUSPEND,))),
                _case(f"2 batches, a task hangs: {name}", _alter(cluster, kinds=(Fault.HANG,))),
            ]
        if (cluster.tv == 1) is not bool(keeps) and cluster.late_markers:
            cases.append(
                _case(f"2 batches, a request comes late: {name}", _alter(cluster, kinds=LATE), "lost")
            )
    for tv in (1, 2):
        keeps, other = (tv == 2 or None), (tv == 1 or None)
        empty = frozenset({(0, 1), (1, 0), (1, 1)})
        two = Shape(tv=tv, faults=2)
        cases += [
            _case(f"2 batches, two kills: TV{tv}", _alter(two, kinds=(Fault.KILL,), keeps=other)),
            _case(f"1 batch, two losses: TV{tv}", _alter(two, batches=1, kinds=LOSSES, keeps=keeps)),
            _case(
                f"1 batch, 1 task, two strikes: TV{tv}",
                _alter(two, batches=1, partitions=1, kinds=STRIKES, keeps=other),
                *(("lost",) if tv == 2 else ()),
            ),
            _case(
                f"1 batch, killed and timed out, sealed: TV{tv}",
                _alter(two, batches=1, kinds=(Fault.KILL, Fault.EXPIRE), keeps=True),
            ),
            _case(
                f"checkpoint lost and killed: TV{tv}",
                _alter(two, batches=1, kinds=(Fault.WIPE, Fault.KILL), keeps=other),
            ),
            _case(
                f"2 batches, 1 task, stopped: TV{tv}",
                Shape(tv=tv, partitions=1, kinds=(Fault.END,), keeps=keeps),
            ),
            _case(f"checkpoint lost: TV{tv}", Shape(tv=tv, batches=3, kinds=(Fault.WIPE,), keeps=keeps)),
            _case(
                f"handed over to a new checkpoint: TV{tv}",
                Shape(tv=tv, partitions=tv, kinds=(Fault.HANDOVER,), keeps=keeps),
            ),
            _case(
                f"1 batch, 1 task, handed over, two drivers take turns: TV{tv}",
                Shape(tv=tv, batches=1, partitions=1, kinds=(Fault.HANDOVER,), switches=1, keeps=other),
            ),
            _case(
                f"empty tasks, an empty batch: TV{tv}",
                Shape(tv=tv, kinds=(*LOSSES, Fault.REPEAT), empty=empty),
            ),
            _case(f"producer ids rotate: TV{tv}", Shape(tv=tv, batches=3, kinds=LOSSES, last_epoch=2)),
            _case(
                f"producer ids rotate, sealed: TV{tv}",
                Shape(tv=tv, batches=3, kinds=LOSSES, last_epoch=4 - tv, keeps=True),
            ),
            _case(
                f"1 batch, 1 task, two drivers take turns: TV{tv}",
                Shape(tv=tv, batches=1, partitions=1, kinds=(Fault.SUSPEND,), switches=1, keeps=keeps),
            ),
            _case(
                f"sealing is not offered: TV{tv}", Shape(tv=tv, batches=1, kinds=STRIKES, keeps=False), "lost"
            ),
        ]
    stopped = Shape(batches=1, partitions=1, faults=2, kinds=(Fault.END, Fault.KILL), struck="task")
    cases += [
        _case("1 batch, 1 task, stopped, and the task dies", stopped),
        _case(
            "1 batch, 1 task hangs, stopped",
            _alter(stopped, kinds=(Fault.END, Fault.HANG), struck="task: Produce"),
        ),
    ]
    strikes = tuple(kind for kind in STRIKES if kind is not Fault.EXPIRE)
    late = Shape(batches=1, partitions=1, faults=2, kinds=(Fault.HANG, *strikes), struck="task")
    cases.append(_case("1 batch, 1 task hangs and is struck", late))
    restored = Shape(partitions=1, kinds=(Fault.RESTORE,))
    cases += [
        _case("2 batches of 1 task, brokers are restored: TV2", restored, "lost"),
        _case(
            "2 batches of 1 task, brokers are restored, sealed: TV1",
            _alter(restored, tv=1, keeps=True),
            "lost",
        ),
    ]
    unasked = Shape(tv=1, batches=3, partitions=1, kinds=(*STRIKES, *LATE), struck="task", verifies=False)
    cases.append(_case("3 batches of 1 task, one strike, leaders do not verify", unasked, "lost"))
    offsets = _alter(unasked, batches=2, struck="commit: ")
    cases.append(
        _case("2 batches of 1 task, one strike at commits, leaders do not verify", offsets, "held", "lost")
    )
    at_most_once = Shape(batches=1, kinds=(*LOSSES, Fault.REPEAT, Fault.SUSPEND), at_most_once=True)
    for tv in (1, 2):
        forgets = Shape(tv=tv, partitions=1, faults=2, kinds=(Fault.FORGET, Fault.KILL), late_markers=tv == 2)
        held = ("held",) if tv == 1 else ()
        cases.append(_case(f"2 batches of 1 task, markers of the sink are lost: TV{tv}", forgets, *held))
    return [*cases, _case("at most once", at_most_once, "dropped")]


def deep(faults: int) -> list[Case]:
    """Up to `faults` faults in one history: 2 takes a quarter of an hour, 3 many hours."""
    cases = []
    for name, keeps, cluster in _clusters():
        lost = () if keeps else ("lost",)
        everything = tuple(kind for kind in BY_ITSELF if kind is not Fault.WIPE)
        cases += [
            _case(
                f"3 batches, anything once, and turns: {name}",
                _alter(cluster, batches=3, kinds=AT_ONCE, switches=1),
                *lost,
            ),
            _case(
                f"3 batches, late or hung: {name}",
                _alter(cluster, batches=3, kinds=(*LATE, Fault.HANG)),
                "lost",
            ),
            _case(
                f"3 batches of 1 task, brokers are restored: {name}",
                _alter(cluster, batches=3, partitions=1, kinds=(Fault.RESTORE,)),
                "lost",
            ),
            _case(f"2 batches, {faults} losses: {name}", _alter(cluster, faults=faults, kinds=LOSSES), *lost),
            _case(
                f"1 batch, {faults} of anything: {name}",
                _alter(cluster, batches=1, faults=faults, kinds=everything),
                "lost",
            ),
        ]
    return cases


def names(cases: Sequence[Case]) -> list[str]:
    """For pytest."""
    return [case.name for case in cases]
