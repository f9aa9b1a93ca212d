"""Rows lost after their decision and written again, beyond streams: batch writes with a token, dead letters;
and the option's own rules. (The streams are test_crash_table.py's.)"""

import re
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from eoslog.client.admin import transaction_states
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import BatchRefused, ParticipantsLost, ReplayDiffers
from eoslog.connector.commit.places import Place
from eoslog.connector.commit.task_reports import Batch, Decided, Report
from eoslog.connector.commit.write_token import Token
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.noted_rows import _as_decided
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.errors import OptionError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.brokers import Kafka, start_broker

PATIENCE_SECONDS = 120


class Killed(Exception):
    """The job is gone."""


@pytest.fixture(scope="module")
def hasty() -> Iterator[Kafka]:
    """A broker that looks for timed-out transactions all the time."""
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with start_broker({interval: "100"}) as broker:
        yield Kafka(broker.bootstrap)


class Job:
    """A batch write with a token, on one topic, with another one for its dead letters."""

    def __init__(self, kafka: Kafka, **more: str) -> None:
        self.kafka, self.topic, self.dead = kafka, kafka.topic(1), kafka.topic(1)
        self.given = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": self.topic,
            "deadletter.topic": self.dead,
            "write.token": f"token-{self.topic}",
            "two.phase.commit": "false",
        } | {name.replace("__", "."): value for name, value in more.items()}

    def options(self, **more: str) -> SinkOptions:
        given = self.given | {name.replace("__", "."): value for name, value in more.items()}
        return sink_options(given, stream=False)

    def write(
        self, options: SinkOptions, rows: list[list[str]], runner: Runner | None = None
    ) -> list[Report]:
        """Run it: a task for each list of values. Those with a "!" name a partition that does not exist."""
        begun = committer.begin_batch(options, runner)
        query = begun.batch.query_id if begun is not None and begun.batch is not None else ""
        reports = [
            write_rows(options, begun, Attempt(query, 0, number), iter([_batch(values)])).report
            for number, values in enumerate(rows)
        ]
        committer.commit_batch(options, reports, runner)
        return [report for report in reports if report is not None]

    def lose(self, rows: list[list[str]], **more: str) -> None:
        """Run it until its first transaction is committed, die, and let the others time out."""
        as_short_as_can_be = [str(3000 << doubled) for doubled in range(6)]
        options = self.options(**more)
        tries = (self.options(kafka__transaction__timeout__ms=ms, **more) for ms in as_short_as_can_be)
        assert any(self._is_killed(one, rows) for one in tries), "too slow for these time-outs"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while transaction_states.list_transactions(shared_cluster(options.client), self.prefix, ["Ongoing"]):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def _is_killed(self, options: SinkOptions, rows: list[list[str]]) -> bool:
        """Whether it came to its decision: a slow machine may not, within a short time-out."""
        ends = 0

        def die(command: c.Command[Any]) -> None:
            nonlocal ends
            ends += isinstance(command, c.End) and command.commit
            if ends == 3:  # the decision, the first, and now the second
                raise Killed

        runner = Runner(shared_cluster(options.client), options.transaction_timeout_ms, before=die)
        try:
            self.write(options, rows, runner)
        except Killed:
            return True
        except BatchRefused:
            return False
        raise AssertionError("it went through")

    @property
    def prefix(self) -> str:
        return Token.of(self.given["write.token"]).sink_id("eoslog-write", self.topic)

    def visible(self) -> tuple[list[bytes], list[bytes]]:
        """Rows, and dead letters."""
        good, dead = (
            sorted(row[3] for row in self.kafka.rows(topic, 1)) for topic in (self.topic, self.dead)
        )
        return good, dead


def _batch(values: list[str]) -> pa.RecordBatch:
    places = pa.array([99 if value.endswith("!") else None for value in values], pa.int32())
    return pa.record_batch({"value": pa.array(values), "partition": places})


ROWS = [["a", "b!"], ["c", "d", "e!"], ["f"]]
GOOD, DEAD = [b"a", b"c", b"d", b"f"], [b"b!", b"e!"]


def test_a_batch_write_with_a_token_is_replayed_with_its_dead_letters(hasty: Kafka) -> None:
    job = Job(hasty)
    job.lose(ROWS, on__lost__transaction="replay")
    assert job.visible() == ([b"a"], [b"b!"])
    with pytest.raises(ParticipantsLost, match=r"4 rows of its partitions \[1, 2\] are lost"):
        job.write(job.options(), ROWS)
    replay = job.options(on__lost__transaction="replay")
    with pytest.raises(ReplayDiffers, match=r"partition 1 has other rows; partition 2 has other rows"):
        job.write(replay, [["a", "b!"], ["c", "e!", "f"], ["d"]])
    reports = job.write(replay, [["b!", "a"], ["e!", "d", "c"], ["f"]])
    assert [isinstance(report, Decided) for report in reports] == [True, False, False]
    assert job.visible() == (GOOD, DEAD)
    assert all(isinstance(report, Decided) for report in job.write(replay, ROWS))
    assert job.visible() == (GOOD, DEAD)


def test_lost_rows_are_given_up_for_good_with_the_word_that_the_error_names(hasty: Kafka) -> None:
    """The next write of the token's sink, and the token itself, go on."""
    job = Job(hasty)
    job.lose(ROWS)
    with pytest.raises(ParticipantsLost) as lost:
        job.write(job.options(), ROWS)
    word = re.findall(r"start\.accepted=(\S+):", str(lost.value))[-1]
    reports = job.write(job.options(start__accepted=word), ROWS)
    assert all(isinstance(report, Decided) for report in reports)
    assert all(isinstance(report, Decided) for report in job.write(job.options(), ROWS))
    assert job.visible() == ([b"a"], [b"b!"])


def test_a_loss_that_was_not_expected_is_replayed_by_numbers_of_rows(hasty: Kafka) -> None:
    """The option comes after the loss: the decision has no checksums."""
    job = Job(hasty)
    job.lose(ROWS)
    replay = job.options(on__lost__transaction="replay")
    with pytest.raises(ReplayDiffers, match=r"2 tasks instead of 3; partition 0 has 3 rows instead of 2"):
        job.write(replay, [["a", "b!", "f"], ["c", "d", "e!"]])
    job.write(replay, ROWS)
    assert job.visible() == (GOOD, DEAD)


@pytest.mark.parametrize(
    ("stream", "given", "why"),
    [
        (False, {}, "needs write.token"),
        (True, {"processing.guarantee": "at_most_once"}, "needs processing.guarantee=exactly_once"),
        (True, {"processing.guarantee": "at_least_once"}, "needs processing.guarantee=exactly_once"),
    ],
)
def test_replay_is_refused_where_it_has_no_meaning(stream: bool, given: dict[str, str], why: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t", "on.lost.transaction": "replay"} | given
    with pytest.raises(OptionError, match=f"on.lost.transaction=replay {why}"):
        sink_options(options, stream=stream)
    assert sink_options({**options, "on.lost.transaction": "stop"}, stream=stream)


@pytest.mark.parametrize(
    ("noted", "decided", "placed", "counts"),
    [
        pytest.param(7, Batch("q", 7, "d"), True, "decision", id="the same batch"),
        pytest.param(8, Batch("q", 7, "d"), True, "note", id="the note is of the next one"),
        pytest.param(7, Batch("q", 7, "d"), False, "note", id="the decision has no places"),
        pytest.param(7, Batch("another", 7, "d"), True, "note", id="another query's decision"),
    ],
)
def test_the_places_of_a_decision_count_before_the_note_s(
    noted: int, decided: Batch, placed: bool, counts: str
) -> None:
    """A driver that was replaced may have noted its own rows, which are aborted."""
    loser, winner = (Place("out", "id", 0, at, ProducerIdentity(who, 0), 1) for at, who in ((4, 1), (7, 2)))
    last = Decision(8, Batch("q", 7, "d"), ProducerIdentity(0, 0), (), (), places=(winner,) if placed else ())
    note = NotedPlaces(((noted, (loser,)), (6, ())), (loser,))
    found = _as_decided(note, decided, last)
    assert found.batches[0] == (noted, (winner,) if counts == "decision" else (loser,))
    assert found.batches[1:] == note.batches[1:] and found.older == note.older
