"""`eoslog top` on a broker with 500 groups and 2,000 transactional ids, in a terminal of 80 times 24."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from eoslog.cli import main
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import client_config
from eoslog.testing import EmbeddedBroker
from eoslog.top.cluster_snapshot import ClusterSnapshot, look
from eoslog.top.columns import DisplayOptions
from eoslog.top.figures import figures
from eoslog.top.view import picture
from tests.many import GROUPS, IDS_OF_A_SINK, OTHER_IDS, READERS, SINKS, WAIT_S, fill, reader, sink

RECORDS, WIDTH, LINES = 600, 80, 24
MOST_CPU_S = 0.5
"""Of a screen, from the look to the last line: computing time, since the machine may stand still."""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(timeout=WAIT_S) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(RECORDS):
            producer.produce("orders", b"v")
        assert producer.flush(WAIT_S) == 0
        fill(broker.bootstrap, "orders", RECORDS)
        yield broker.bootstrap


@pytest.fixture(scope="module")
def seen(bootstrap: str) -> ClusterSnapshot:
    with Cluster(client_config(bootstrap, None, WAIT_S)) as cluster:
        return look(cluster)


def screen(seen: ClusterSnapshot, wish: DisplayOptions) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=WIDTH, height=LINES, force_terminal=False)
    console.print(picture(figures(seen, None, wish), lines=LINES, wish=wish))
    return file.getvalue().splitlines()


def firsts(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.strip()]


def test_it_is_all_seen(seen: ClusterSnapshot) -> None:
    assert len(seen.groups) == GROUPS == 500 and len(seen.ids) == 2000


def test_the_first_screen_has_sinks_as_a_line_each(seen: ClusterSnapshot) -> None:
    lines = screen(seen, DisplayOptions(transactions="name"))
    assert len(lines) <= LINES and max(map(len, lines)) <= WIDTH
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert rows["copy-1"][1:3] == [str(IDS_OF_A_SINK), "3"] and rows["copy-1"][4] == "2", lines
    assert not any("/w." in line for line in lines), "no id of a sink"
    assert {"shop-reader-*", "dash-reader-*"} <= set(firsts(lines)), "those that do not fit, by their prefix"
    assert reader(READERS - 1) in firsts(lines), "the largest lag stands alone"


def test_the_screen_is_filtered(seen: ClusterSnapshot) -> None:
    lines = screen(seen, DisplayOptions(text="SHOP-READER-00"))
    names = [name for name in firsts(lines) if "reader" in name]
    assert names == [reader(n) for n in (9, 7, 5, 3, 1)] and "orders" not in firsts(lines)
    lines = screen(seen, DisplayOptions(text="copy/eu"))
    assert [line.split()[:3] for line in lines if line.startswith("copy")] == [["copy/eu", "240", "3"]]


@pytest.mark.parametrize(("sort", "first"), [("lag", reader(READERS - 1)), ("name", reader(0))])
def test_the_screen_is_sorted(seen: ClusterSnapshot, sort: str, first: str) -> None:
    lines = screen(seen, DisplayOptions().sorted_by(sort))
    assert next(name for name in firsts(lines) if "reader" in name) == first


def test_a_screen_takes_little_time(seen: ClusterSnapshot) -> None:
    for wish in (DisplayOptions(), DisplayOptions(unfolded=True), DisplayOptions(text="w.1", unfolded=True)):
        taken = []
        for _ in range(3):
            begun = time.process_time()
            screen(seen, wish)
            taken.append(time.process_time() - begun)
        assert min(taken) < MOST_CPU_S, (wish, taken)


def top(bootstrap: str, *arguments: str) -> str:
    given = ["top", "--once", "--interval", "0.1", "--bootstrap-server", bootstrap, *arguments]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_page_is_filtered_sorted_and_folded_by_options(bootstrap: str) -> None:
    names = firsts(top(bootstrap, "--filter", "job-", "--sort", "name").splitlines())
    assert "GROUP" in names and not any(name.startswith("job-") for name in names), "none of them is open"
    names = firsts(top(bootstrap, "--filter", "Reader", "--sort", "name").splitlines())
    assert [name for name in names if "reader" in name] == sorted(map(reader, range(READERS)))
    names = firsts(top(bootstrap).splitlines())
    assert sorted(name for name in names if name.startswith("copy")) == sorted(
        sink(n).id for n in range(SINKS)
    )
    names = firsts(top(bootstrap, "--all", "--filter", "copy-1").splitlines())
    assert names.count("copy-1") == 1 and "copy-1/finished" in names and "copy-1/5.0/0/w.0" in names
    (sink_,) = json.loads(top(bootstrap, "--json", "--filter", "copy-1"))["sinks"]
    assert (sink_["sink"], sink_["ids"], sink_["open"], sink_["groups"]) == ("copy-1", IDS_OF_A_SINK, 3, 2)
    assert OTHER_IDS + SINKS * IDS_OF_A_SINK == 2000
