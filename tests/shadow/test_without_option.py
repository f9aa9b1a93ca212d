"""A shadow that was started without shadow.of for some batches, or whose running query promised less,
without Spark: rows are counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from click.testing import CliRunner, Result

from eoslog.cli import main
from eoslog.errors import OptionError, ShadowLost
from eoslog.shadow import take_over
from eoslog.shadow.take_over import LEAST_STEPS
from tests.checkpoint.copy_query import EXACT, CopyQuery, Killed
from tests.connector.brokers import Kafka

EMPTY: Mapping[str, str] = MappingProxyType({})


class Pair:
    """A running query, `old`, and its shadow, `new`, which have both done three batches. `more`: options of
    the running query that the shadow's source has, too."""

    def __init__(
        self, kafka: Kafka, place: Path, patch: pytest.MonkeyPatch, more: Mapping[str, str] = EMPTY
    ) -> None:
        self.kafka, self.rows = kafka, 0
        source, topic, into = (kafka.topic() for _ in range(3))
        self.group = f"g-{topic}"
        live = {"transactional.id": f"v1-{topic}", "kafka.group.id": self.group, **more}
        reads = {"shadow.of": f"v1-{topic}", "shadow.topic": topic, "shadow.into": into}
        reads |= {"kafka.group.id": self.group, **more}
        self.old = CopyQuery(place / "old", kafka, source, topic, live, patch)
        sink = {"transactional.id": f"v2-{topic}"}
        self.new = CopyQuery(place / "new", kafka, source, into, sink, patch, reads)
        self.go_on(3)

    @property
    def plain(self) -> CopyQuery:
        """The shadow without shadow.of."""
        return replace(self.new, reads={"kafka.group.id": self.group})

    @property
    def live(self) -> CopyQuery:
        """The new version, in the running query's names."""
        return replace(self.old, place=self.new.place)

    def puts(self) -> None:
        self.old.puts(self.rows, 5)
        self.rows += 5

    def go_on(self, batches: int) -> None:
        """Both."""
        for _ in range(batches):
            self.puts()
            assert self.old.start() and self.new.start()

    def type(self, *command: str) -> Result:
        """`eoslog` with this command."""
        given = [*command, "--bootstrap-server", self.kafka.bootstrap]
        return CliRunner().invoke(main, given)

    def take_over(self, *more: str) -> Result:
        return self.type("shadow", "take-over", str(self.new.place), "--watch", "0", "--fence", *more)

    def stops(self, query: CopyQuery, says: str) -> str:
        """The query does not start; what it says."""
        with pytest.raises(OptionError, match=says) as stopped:
            query.start()
        return str(stopped.value)


@pytest.fixture
def pair(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    yield Pair(kafka, tmp_path, monkeypatch)


def shadow_again(pair: Pair, said: str) -> None:
    """The way out that the messages name, to its end: a shadow again, which takes over."""
    found = re.search(r"eoslog (checkpoint rewind \S+ --to-batch \d+)", said)
    assert found is not None, said
    edit = [*found[1].split(), "--watch", "0", "--fence"]
    done = pair.type(*edit)
    if more := re.search(r"--accept-duplicates \d+", done.output):  # at_least_once may have written them
        done = pair.type(*edit, *more[0].split())
    assert done.exit_code == 0, done.output
    while pair.old.start():
        pass
    pair.go_on(2)
    done = pair.take_over()
    named = re.search(r"--from-batch \d+", done.output)
    assert done.exit_code == 1 and named is not None, done.output
    pair.go_on(LEAST_STEPS)
    done = pair.take_over(*named[0].split())
    assert done.exit_code == 0, done.output
    pair.puts()
    assert pair.live.start() and pair.old.astray == EXACT


@pytest.mark.parametrize("names", ["own", "live"])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once", "at_most_once"])
def test_it_does_not_go_on_later_in_what_is_the_running_querys(
    pair: Pair, guarantee: str, names: str
) -> None:
    """It has gone on in its own topic, for two batches. The way out ends."""
    plain = replace(pair.plain, sink={**pair.plain.sink, "processing.guarantee": guarantee})
    for _ in range(2):
        pair.puts()
        assert plain.start()
    pair.puts()
    as_old = replace(plain, target=pair.old.target) if names == "own" else pair.live
    said = pair.stops(as_old, "was a shadow's of the query")
    assert pair.old.start() and pair.old.astray == EXACT
    shadow_again(pair, said)


def test_what_belongs_to_nobody_else_is_its_own(pair: Pair) -> None:
    """It goes on without the option in its own topic, and later in a third one."""
    plain = pair.plain
    for target in (plain.target, plain.target, pair.kafka.topic()):
        pair.puts()
        assert replace(plain, target=target).start()


def test_who_was_a_shadow_and_took_over_gets_other_names(pair: Pair) -> None:
    """As any query; but not, by mistake, those that it had as a shadow."""
    assert pair.take_over().exit_code == 0
    for _ in range(2):
        pair.puts()
        assert pair.live.start()
    pair.puts()
    sink = pair.live.sink["transactional.id"]
    pair.stops(pair.plain, f"Set topic={pair.old.target}, transactional.id={sink}")
    assert pair.live.start()
    for number in range(2):
        pair.puts()
        assert replace(pair.live, sink={**pair.live.sink, "transactional.id": f"other-{number}"}).start()
    assert pair.old.astray == EXACT


def test_a_take_over_that_nobody_has_noted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who carried it out has died. A start without the option in the shadow's topic stops, as readers would
    miss its rows; with the names that the error gives it goes on."""

    def dies(*_given: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(take_over, "note_taken", dies)
        assert isinstance(pair.take_over().exception, Killed)
    pair.puts()
    said = pair.stops(pair.plain, "has taken the place")
    assert f"transactional.id={pair.live.sink['transactional.id']}" in said
    pair.puts()
    while pair.live.start():
        pass
    assert pair.old.astray == EXACT


def test_a_take_over_with_decisions_that_are_elsewhere(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running query has a decision.topic, and its new version none. The way out that is named ends."""
    topic = kafka.topic()
    pair = Pair(kafka, tmp_path, monkeypatch, {"decision.topic": topic})

    def dies(*_given: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(take_over, "note_taken", dies)
        assert isinstance(pair.take_over("--decision-topic", topic).exception, Killed)
    pair.puts()
    said = pair.stops(pair.plain, "has taken the place of .* and its checkpoint does not say so")
    assert f"eoslog shadow take-over {pair.new.place} --decision-topic" in said
    assert pair.take_over("--decision-topic", topic).exit_code == 0
    while pair.live.start():
        pass
    assert pair.old.astray == EXACT


def test_the_newest_batch_was_planned_without_the_option(pair: Pair) -> None:
    """It is done. What the messages say ends."""
    pair.puts()
    assert pair.plain.start()
    done = pair.take_over()
    assert done.exit_code == 1 and "start the query with that option" in done.output, done.output
    report = pair.type("shadow", "report", str(pair.new.place))
    assert report.exit_code == 2 and "--from-batch 5" in report.output, report.output
    pair.stops(pair.new, "start it when that query has read as far")
    pair.puts()
    assert pair.old.start() and pair.new.start()
    pair.go_on(LEAST_STEPS)
    report = pair.type("shadow", "report", str(pair.new.place), "--from-batch", "5", "--json")
    assert report.exit_code == 0 and json.loads(report.stdout)["equal"], report.output
    done = pair.take_over("--from-batch", "5")
    assert done.exit_code == 0, done.output
    pair.puts()
    assert pair.live.start() and pair.old.astray == EXACT


# -- a running query that does not promise every row once --------------------------------------------


def test_batches_that_at_most_once_has_dropped(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shadow has written their rows, so the versions seem to differ. The way out ends."""
    most = replace(pair.old, sink={**pair.old.sink, "processing.guarantee": "at_most_once"})
    for _ in range(2):
        pair.puts()
        with pytest.raises(Killed):
            most.start(killed=True)
        assert most.start() and pair.new.start()
    pair.go_on(LEAST_STEPS)
    done = pair.take_over()
    assert done.exit_code == 1 and "did not run with exactly_once then" in done.output, done.output
    named = re.search(r"--from-batch \d+", done.output)
    assert named is not None, done.output
    done = pair.take_over(*named[0].split())
    assert done.exit_code == 0, done.output
    pair.puts()
    assert pair.live.start() and pair.old.astray == {"lost": 10, "doubled": 0}


def at_least_once_for_a_while(pair: Pair) -> None:
    """Nobody has decided what the running query has written then."""
    least = replace(pair.old, sink={**pair.old.sink, "processing.guarantee": "at_least_once"})
    for _ in range(2):
        pair.puts()
        assert least.start() and pair.new.start()
    pair.puts()
    assert pair.old.start()


def forgotten(pair: Pair) -> None:
    """The cluster has forgotten the running query's decisions, which goes on."""
    for group in (pair.old.sink["transactional.id"], pair.group):
        pair.kafka.admin.delete_consumer_groups([group])[group].result(30)
    for _ in range(2):
        pair.puts()
        assert pair.old.start()


def made_anew(pair: Pair) -> None:
    """The running query reads a topic that was made anew."""
    pair.kafka.make_anew(pair.old.source)
    pair.puts()
    assert replace(pair.old, reads={**pair.old.reads, "failOnDataLoss": "false"}).start()


@pytest.mark.parametrize("history", [at_least_once_for_a_while, forgotten, made_anew])
def test_a_shadow_begins_anew(pair: Pair, tmp_path: Path, history: Callable[[Pair], None]) -> None:
    """As is said: under its former name its start would stop. Then it takes over."""
    history(pair)
    before = pair.kafka.rows(pair.old.target)
    with pytest.raises(ShadowLost, match=r"shadow anew, with a new checkpoint and a new transactional\.id"):
        pair.new.start()
    reads = {**pair.new.reads, "startingOffsets": "committed"}
    sink = {"transactional.id": f"v3-{pair.new.target}"}
    pair.new = replace(pair.new, place=tmp_path / "anew", reads=reads, sink=sink)
    pair.puts()
    assert pair.old.start()
    while pair.new.start():
        pass
    first = pair.rows
    pair.go_on(LEAST_STEPS + 1)
    done = pair.take_over()
    assert done.exit_code == 0, done.output
    pair.puts()
    assert pair.live.start()
    written = [row[3] for row in pair.kafka.rows(pair.old.target)[len(before) + 5 :]]
    assert sorted(written) == sorted(b"r%d" % number for number in range(first, pair.rows))


# -- names and groups of the running query -----------------------------------------------------------


def test_a_running_query_that_is_renamed(pair: Pair) -> None:
    """Its shadow goes on with the option that the error gives, and takes over under the new name."""
    before = pair.old.sink["transactional.id"]
    pair.old = replace(pair.old, sink={**pair.old.sink, "transactional.id": f"{before}-b"})
    pair.puts()
    assert pair.old.start()
    said = pair.stops(pair.new, "if it was renamed, set shadow.of=")
    done = pair.take_over()
    assert done.exit_code == 1 and f"start the shadow with shadow.of={before}-b" in done.output, done.output
    named = said.rpartition("shadow.of=")[2]
    pair.new = replace(pair.new, reads={**pair.new.reads, "shadow.of": named})
    assert pair.new.start()
    pair.go_on(2)
    done = pair.take_over()
    assert done.exit_code == 0, done.output
    pair.puts()
    assert pair.live.start() and pair.old.astray == EXACT


def test_the_running_querys_offsets_are_forgotten(pair: Pair) -> None:
    """Its decisions are not. The way out is a batch of that query."""
    pair.puts()
    assert pair.old.start()
    pair.kafka.admin.delete_consumer_groups([pair.group])[pair.group].result(30)
    pair.stops(pair.new, "has forgotten its offsets: let that query run a batch")
    pair.go_on(2)
    done = pair.take_over()
    assert done.exit_code == 0, done.output
    pair.puts()
    assert pair.live.start() and pair.old.astray == EXACT
