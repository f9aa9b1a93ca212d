"""What belongs together: a decision, its source offsets and its rows; also of a query that runs and is
killed.

No broker: the answers are given.
"""

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from eoslog.client.admin import groups
from eoslog.client.wire.cluster import TopicInfo
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.places import Place
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.offsets.offsets import Offsets, ShadowCut, SourcePosition, to_json
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source import shadowed
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.source.shadowed import Cut, Shadowed
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.errors import OptionError, ShadowLost
from eoslog.protocol.producer_identity import NOBODY
from tests.connector.brokers import Kafka
from tests.kills.kill_brokers import Bundled
from tests.kills.kill_round import PARTITIONS, TARGET_PARTITIONS
from tests.kills.soak_hand_over import Soak

S0, S1, TOTALS = ("orders", 0), ("orders", 1), ("totals", 0)
GIVEN = {
    "kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "kafka.group.id": "g", "shadow.of": "v1",
    "shadow.topic": "totals", "shadow.into": "new", "kafka.default.api.timeout.ms": "200",
}  # fmt: skip


def decided(sequence: int) -> Decision:
    """A decision whose last row in totals stands right before offset 50."""
    places = (Place("totals", "id", 0, 49, NOBODY, 0),)
    made = Decision(sequence, Batch("q", sequence, "d"), NOBODY, (), (TOTALS,), topics=(("totals", 5),))
    return made._replace(places=places)


UNWATCHED = {"failOnDataLoss": "false", "kafka.isolation.level": "read_uncommitted"}
"""The source looks for no open transactions then."""


class Unmet:
    """Stands for a cluster; what it is asked is given."""

    def meet(self) -> None:
        pass


class Source:
    """Stands for SourceTopics."""

    cluster = None

    def partitions(self) -> list[tuple[str, int]]:
        return [S1, S0]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the cluster answers: each decision that is looked at, the group's offsets, the ends of topics."""
    world: dict[str, Any] = {
        "decided": [],
        "group": {S0: (5, ""), S1: (-1, "")},
        "ends": {"totals": 50, "new": 40},
        "plan": "",
        "earlier": (),
    }

    def last(_: Any, names: list[str], decisions: str) -> dict[str, Decision | None]:
        sequence = world["decided"].pop(0)
        made = None if sequence is None else decided(sequence)
        return {names[0]: made and made._replace(ends=world["plan"], earlier=world["earlier"])}

    monkeypatch.setattr(shadowed, "last_decisions", last)
    monkeypatch.setattr(groups, "fetch_committed", lambda *_: world["group"])
    monkeypatch.setattr(Shadowed, "_described", lambda _, topic: TopicInfo(topic, {0: 1}, topic_id="id"))
    monkeypatch.setattr(Shadowed, "_ends", lambda _, topic: {(topic.name, 0): world["ends"][topic.name]})
    return world


@pytest.fixture
def query() -> Shadowed:
    options = source_options(GIVEN, stream=True)
    assert options.shadow is not None
    return Shadowed(options, options.shadow, Source())  # type: ignore[arg-type]


def cut(sequence: int, batch: int | None = None) -> ShadowCut:
    """Of a decision. `batch`: what it decided."""
    made = ("q", sequence if batch is None else batch, "d")
    return ShadowCut("v1", "g", sequence, {("totals", 0): 50}, {("new", 0): 40}, decided=made)


def former(sequence: int) -> ShadowCut:
    """As an earlier version has planned it."""
    return cut(sequence)._replace(decided=None)


def at(offsets: Offsets, shadow: ShadowCut | None = None) -> SourcePosition:
    return SourcePosition(offsets, {}, None, {}, shadow=shadow)


def test_it_is_the_same_decision_before_and_after(world: dict[str, Any], query: Shadowed) -> None:
    world["decided"] = [7, 7]
    assert query.cut() == ({S0: 5}, cut(7))


@pytest.mark.parametrize("decided", [[None], [7, 8], [7, None]])
def test_the_running_query_goes_on_meanwhile(
    world: dict[str, Any], query: Shadowed, decided: list[int | None]
) -> None:
    world["decided"] = decided
    assert query.cut() is None


def test_who_has_taken_over_reads_to_the_end_of_the_log(world: dict[str, Any], query: Shadowed) -> None:
    """Whatever is decided in that sink: nobody is asked."""
    over = cut(7)._replace(over=True)
    assert query.end(at({S0: 5}, over), at({S0: 9})) == at({S0: 9}, over)


def test_the_group_is_another_query_s(world: dict[str, Any], query: Shadowed) -> None:
    """A note of the query that is shadowed is right, and so is none."""
    world |= {"decided": [7, 7], "group": {S0: (5, Note("v1", "q", 3).text()), S1: (4, "")}}
    assert query.cut() == ({S0: 5, S1: 4}, cut(7))
    world |= {"decided": [7, 7], "group": {S0: (5, Note("other", "q", 3).text()), S1: (4, "")}}
    with pytest.raises(
        OptionError, match=r"those of the query with transactional.id=other, and shadow.of is v1"
    ):
        query.cut()


@pytest.mark.parametrize(("end", "is_met"), [(49, False), (50, True), (60, True)])
def test_all_rows_of_the_decision_can_be_read(
    world: dict[str, Any], query: Shadowed, end: int, is_met: bool
) -> None:
    """Readers wait where a transaction is open. Behind these rows it may be the next batch's."""
    world |= {"decided": [7, 7], "ends": {"totals": end, "new": 40}}
    assert (query.cut() is not None) == is_met


def test_the_first_batch_is_waited_for(world: dict[str, Any], query: Shadowed) -> None:
    """Spark runs a first batch in any case, and one without a decision could not be compared."""
    world["decided"] = [None, 7, 8, 8, 8]
    assert query.end(at({S0: 0}), at({S0: 99})) == at({S0: 5}, cut(8))
    world["decided"] = [None]
    assert query.end(at({S0: 5}, cut(8)), at({S0: 99})) is None


def test_the_end_of_a_batch(world: dict[str, Any], query: Shadowed) -> None:
    """A partition that the running query has not read yet stays as it is; one that is gone is left out."""
    gone = ("gone", 0)
    world["decided"] = [8, 8]
    end = query.end(at({S0: 3, S1: 2, gone: 1}, cut(7)), at({S0: 99, S1: 99}))
    assert end == at({S0: 5, S1: 2}, cut(8))


def test_nothing_was_decided_since(world: dict[str, Any], query: Shadowed) -> None:
    world["decided"] = [7, 7]
    assert query.end(at({S0: 5}, cut(7)), at({S0: 99})) is None


@pytest.mark.parametrize("decision", [7, 8])
def test_the_running_query_was_set_back(world: dict[str, Any], query: Shadowed, decision: int) -> None:
    world["decided"] = [decision, decision]
    with pytest.raises(ShadowLost, match=r"transactional\.id=v1 was set back"):
        query.end(at({S0: 6}, cut(7, batch=6)), at({S0: 99}))


@pytest.mark.parametrize(
    ("before", "offset"),
    [(cut(9), 5), (former(9), 5), (cut(8, 3), 5), (cut(8, 3), 4), (former(8), 4), (cut(7, 3), 4)],
)
def test_decisions_were_forgotten(
    world: dict[str, Any], query: Shadowed, before: ShadowCut, offset: int
) -> None:
    """They are counted anew: a number may be there again, or a higher one of fewer decisions than batches."""
    world["decided"] = [8, 8]
    with pytest.raises(ShadowLost, match=r"forgotten the decision at which its shadow stands.*Begin its sha"):
        query.end(at({S0: offset}, before), at({S0: 99}))


def test_another_query_s_decisions_are_known(world: dict[str, Any], query: Shadowed) -> None:
    """The running query has a new checkpoint: what the sink remembers of the former one tells that no
    decision was forgotten."""
    other = cut(7)._replace(decided=("former", 40, ""))
    world |= {"decided": [8, 8], "earlier": (Batch("former", 40, ""),)}
    assert query.end(at({S0: 4}, other), at({S0: 99})) == at({S0: 5}, cut(8))
    world |= {"decided": [8, 8], "earlier": ()}
    with pytest.raises(ShadowLost, match="forgotten"):
        query.end(at({S0: 4}, other), at({S0: 99}))


def test_an_earlier_version_s_shadow_goes_on(world: dict[str, Any], query: Shadowed) -> None:
    """Its cut does not say which batch was decided; the next one does."""
    world["decided"] = [7, 7]
    assert query.end(at({S0: 5}, former(7)), at({S0: 99})) is None
    world["decided"] = [8, 8]
    assert query.end(at({S0: 4}, former(7)), at({S0: 99})) == at({S0: 5}, cut(8))


def taken(*offsets: int, sequence: int = 7) -> str:
    """The plan of a batch with which a shadow has taken over, or that it has decided since: where the rows of
    both ended."""
    ends = {TOTALS: offsets[0]}, {("new", 0): offsets[1]}
    found = cut(sequence)._replace(written=ends[0], own=ends[1], over=len(offsets) > 2)
    return f"v1\n{{}}\n{json.dumps(to_json({S0: 9}, shadow=found))}"


@pytest.mark.parametrize("plan", [taken(50, 40, 1), taken(60, 50, sequence=8), taken(50, 41, sequence=8)])
def test_a_copy_of_before_is_no_shadow(world: dict[str, Any], query: Shadowed, plan: str) -> None:
    """It would be its own shadow, and write nowhere but into the shadow's topic."""
    world |= {"decided": [9, 9], "plan": plan}
    with pytest.raises(
        ShadowLost, match=r"has decided batch 9 of query q there: .* a copy of before\. Nothing"
    ):
        query.end(at({S0: 5}, cut(7)), at({S0: 99}))


@pytest.mark.parametrize("plan", [taken(49, 40, 1), taken(50, 39, 1), taken(60, 50, 1, sequence=6)])
def test_the_shadow_of_one_that_has_taken_over(world: dict[str, Any], query: Shadowed, plan: str) -> None:
    """It has begun later, maybe into the topic that the other one had as a shadow."""
    world |= {"decided": [8, 8], "plan": plan}
    assert query.end(at({S0: 4}, cut(7)), at({S0: 99})) == at({S0: 5}, cut(8))


def test_who_has_just_taken_over_reads_to_the_end_of_the_log(world: dict[str, Any], query: Shadowed) -> None:
    world |= {"decided": [8, 8], "plan": taken(50, 40)}
    assert query.end(at({S0: 5}, cut(7)), at({S0: 9})) == at({S0: 9}, cut(7)._replace(over=True))


@pytest.mark.parametrize("trigger", ["availableNow", "processingTime"])
def test_every_trigger_finds_that_it_was_set_back(
    world: dict[str, Any], monkeypatch: pytest.MonkeyPatch, trigger: str
) -> None:
    """A log that was cut is none of it: with failOnDataLoss=false the shadow would follow, silently."""
    reader = StreamReader(source_options(GIVEN | UNWATCHED, stream=True))
    monkeypatch.setattr(SourceTopics, "cluster", Unmet())
    for name, found in (("latest", {S0: 99, S1: 99}), ("met_cluster", None), ("partitions", [S0, S1])):
        monkeypatch.setattr(SourceTopics, name, lambda *_, answer=found: answer)
    world["decided"] = [8] * 8
    if trigger == "availableNow":
        reader.prepareForTriggerAvailableNow()
    stood = to_json({S0: 6, S1: 2}, shadow=cut(7))
    with pytest.raises(ShadowLost, match=r"was set back \(orders-0 from 6 to 5\)"):
        reader.latestOffset(stood, reader.getDefaultReadLimit())


def test_a_shadow_that_begins_ahead_was_not_set_back(world: dict[str, Any], query: Shadowed) -> None:
    world["decided"] = [8, 8]
    with pytest.raises(OptionError, match=r"the shadow begins at 6 in orders-0, and .* has read to 5"):
        query.end(at({S0: 6}), at({S0: 99}))


def test_a_whole_query_ends_where_its_beginning_is_looked_up(world: dict[str, Any], query: Shadowed) -> None:
    """The running query goes on between both looks."""
    world["decided"] = [7, 7, 8, 8]
    query.fix_end()
    assert query.await_cut() == ({S0: 5}, cut(7))
    assert query.end(at({S0: 5}, cut(7)), at({S0: 99})) == at({S0: 5}, cut(7))


def test_it_is_waited_for(world: dict[str, Any], query: Shadowed) -> None:
    world["decided"] = [None, 7, 7]
    assert query.await_cut() == ({S0: 5}, cut(7))
    world["decided"] = [None] * 100
    with pytest.raises(OptionError, match=r"transactional.id=v1 has decided nothing.* 200 ms"):
        query.await_cut()


def test_another_group(world: dict[str, Any], query: Shadowed) -> None:
    world |= {"decided": [7], "group": {S0: (-1, "")}}
    with pytest.raises(OptionError, match="group g has no offset of this query's topics"):
        query.cut()


# -- under load ----------------------------------------------------------------------------------
# Every cut of a query that runs, is killed and handed over is exact: the rows below it are those of its
# source rows, no more and no less. A stock client counts them.

STEPS, STEP_SECONDS = 12, 1.0
DECISIONS = 4
"""A busy machine takes more steps until cuts of so many are found."""


class Cuts:
    """A thread that looks for cuts as fast as it can."""

    def __init__(self, soak: Soak) -> None:
        job = soak.job
        options = source_options(
            {
                "kafka.bootstrap.servers": soak.brokers.bootstrap, "subscribe": job.source,
                "kafka.group.id": job.group, "shadow.of": job.options["transactional.id"],
                "shadow.topic": job.target, "shadow.into": job.source,
            },
            stream=True,
        )  # fmt: skip
        assert options.shadow is not None
        self.found: list[Cut] = []
        self.looks = 0
        self._failure: BaseException | None = None
        self._shadowed = Shadowed(options, options.shadow, SourceTopics(options, lenient=True))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        try:
            while not self._over.is_set():
                self.looks += 1
                cut = self._shadowed.cut()
                if cut is not None:
                    self.found.append(cut)
        except BaseException as error:
            self._failure = error

    @property
    def decisions(self) -> int:
        """Of how many decisions it has found cuts."""
        return len({cut.sequence for _, cut in [*self.found]})

    def end(self) -> list[Cut]:
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.found


def below(rows: list[tuple[int, int]], ends: dict[tuple[str, int], int]) -> int:
    """How many rows of a topic, by partition and offset, lie below these ends."""
    by_partition = {partition: end for (_, partition), end in ends.items()}
    return sum(offset < by_partition.get(partition, 0) for partition, offset in rows)


@pytest.mark.timeout(400)
def test_rows_and_source_rows_belong_together(tmp_path: Path) -> None:
    brokers = Bundled(tmp_path / "broker")
    soak = Soak(brokers, tmp_path / "query", 5)
    try:
        soak.feed.start()
        soak.until(lambda: soak.post.has_noted)
        cuts = Cuts(soak)
        for step in itertools.count():
            if step >= STEPS and cuts.decisions > DECISIONS:
                break
            soak.let_pass(STEP_SECONDS)
            if step % 3 == 1:
                soak.kill_one()
            if step % 5 == 4:
                soak.post.hand_over(stop=False)
        found = cuts.end()
        soak.feed.end()
        kafka = Kafka(brokers.bootstrap)
        read = [row[:2] for row in kafka.rows(soak.job.source, PARTITIONS)]
        written = [row[:2] for row in kafka.rows(soak.job.target, TARGET_PARTITIONS)]
    finally:
        soak.end()
        soak.feed.end()
        brokers.close()
    wrong = [
        (cut.sequence, below(read, ends), below(written, cut.written))
        for ends, cut in found
        if below(read, ends) != below(written, cut.written)
    ]
    assert wrong == [], f"of {len(found)} cuts in {cuts.looks} looks"
    assert cuts.decisions > DECISIONS
