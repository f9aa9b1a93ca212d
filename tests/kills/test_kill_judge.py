"""A short round of the soak, as `make soak-kill` runs hundreds; and its judge is judged by broken sinks."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connector.brokers import Kafka
from tests.kills.kill_brokers import Bundled
from tests.kills.kill_feed import left_open, unmarked
from tests.kills.kill_harms import HARMS
from tests.kills.kill_posts import Found, Tally, kind_of, passes
from tests.kills.kill_query import MARK
from tests.kills.kill_round import Setting, run
from tests.soaks.copy_audit import row

pytestmark = pytest.mark.timeout(400)

EXPECTED = {
    "skips finish": "these transactions are open",
    "writes replays again": r"[1-9]\d* doubled",
    "forgets rows": r"[1-9]\d* lost",
    "swaps rows": r"[1-9]\d* out of order",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundled]:
    started = Bundled(tmp_path_factory.mktemp("kills") / "broker")
    yield started
    started.close()


def setting(seed: int, place: Path, kills: int, harm: str = "") -> Setting:
    """A round of one stream, and of a job of tokens if it is not broken."""
    kinds = ("stream",) if harm else ("stream", "tokens")
    return Setting(seed, kills, place / f"round-{seed}", kinds, (), harm=harm)


def test_a_short_round(brokers: Bundled, tmp_path: Path) -> None:
    """Drivers, tasks and the broker are killed, and every row is there once."""
    tally = Tally()
    lines = run(setting(1, tmp_path, 12), brokers, tally)
    assert len(lines) == 2 and tally.killed >= 12 and tally.rows > 0


@pytest.mark.parametrize("harm", HARMS)
def test_a_broken_sink_is_caught(brokers: Bundled, tmp_path: Path, harm: str) -> None:
    """Nothing is killed; what is wrong is the sink alone."""
    seed = 10 + list(HARMS).index(harm)
    with pytest.raises(Found) as found:
        run(setting(seed, tmp_path, 0, harm=harm), brokers, Tally())
    assert re.search(EXPECTED[harm], str(found.value)), found.value


def test_a_transaction_left_open_is_told(brokers: Bundled) -> None:
    kafka = Kafka(brokers.bootstrap)
    topic = kafka.topic()
    producer = kafka.transactional("left/open")
    producer.begin_transaction()
    producer.produce(topic, b"row")
    producer.flush(60)
    assert list(left_open(brokers.bootstrap, ["left"])) == ["left/open"]
    producer.abort_transaction(60)
    assert left_open(brokers.bootstrap, ["left"]) == {}


def test_a_row_of_another_query_is_not_this_ones() -> None:
    own = row(0, 1)
    marked = own._replace(headers=(*own.headers, (MARK, b"copy")))
    assert unmarked("copy")(marked) == own
    assert unmarked("other")(marked) == marked
    assert unmarked("copy")(own) == own


@pytest.mark.parametrize(
    ("said", "kind", "starts_again"),
    [
        ("BatchRefused: a participant timed out", "BatchRefused", True),
        ("StreamingQueryException: ... eoslog.connector.commit.faults.ParticipantsLost: ...",
         "ParticipantsLost", False),
        ("CheckpointOlder: the sink has decided", "CheckpointOlder", False),
        ("AssertionError: ", "AssertionError", False),
    ],
)  # fmt: skip
def test_what_is_said_is_judged(said: str, kind: str, starts_again: bool) -> None:
    assert kind_of(said) == kind and passes(kind) == starts_again
