"""`eoslog top` on a cluster: pages, a live view in a terminal, its picture for the docs; and with many
names.
"""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from eoslog.cli import main
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import client_config
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.testing import EmbeddedBroker
from eoslog.top import cluster_snapshot as look_module
from eoslog.top.cluster_snapshot import ClusterSnapshot, look
from eoslog.top.columns import DisplayOptions
from eoslog.top.figures import figures
from eoslog.top.view import picture
from tests.top.busy import (
    GROUPS,
    IDS_OF_A_SINK,
    MANY_WAIT_S,
    OPEN,
    OTHER_IDS,
    READERS,
    RECORDS,
    SINKS,
    TOPICS,
    Busy,
    fill,
    reader,
    sink,
)
from tests.top.picture import LARGEST, SVG, draw

PATIENCE_S = 90.0
pytestmark = pytest.mark.timeout(600)


def top(busy: Busy, *arguments: str) -> Result:
    result = CliRunner().invoke(
        main, ["top", "--interval", "0.1", "--bootstrap-server", busy.bootstrap, *arguments]
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_page_shows_what_is_there(busy: Busy) -> None:
    result = top(busy, "--once")
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line.split() for line in result.output.splitlines() if line.strip()}
    for name, partitions in TOPICS.items():
        assert rows[name][1] == str(partitions)
    assert rows["clicks"][4] == str(RECORDS) and rows["payments"][6] == "10"  # offsets, held back
    assert rows["shop"][-1] == "0" or int(rows["shop"][-1]) > 0
    assert rows[OPEN][1] == "Ongoing" and rows[OPEN][3] == "1"
    assert (
        "__consumer_offsets" not in rows and "__consumer_offsets" in top(busy, "--once", "--internal").output
    )


def test_pages_for_programs(busy: Busy) -> None:
    result = top(busy, "--json", "-n", "2", "--sort", "name")
    pages = [json.loads(line) for line in result.output.splitlines()]
    assert len(pages) == 2
    for page in pages:
        assert [row["name"] for row in page["topics"]] == sorted(TOPICS)
        assert page["topics"][0]["records"] == RECORDS and page["topics"][0]["size"] > RECORDS * 300
        assert page["topics"][0]["records_rate"] is not None and page["problems"] == []
        assert {g["name"]: g["behind"] for g in page["groups"]}["dashboard"] == RECORDS // 4 - 5
        (open_,) = page["transactions"]
        assert open_["seconds"] is not None and open_["partitions"] == 1


def test_what_is_written_between_two_looks_is_the_rate(busy: Busy) -> None:
    with Cluster(client_config(busy.bootstrap, None, PATIENCE_S)) as cluster:
        before = look(cluster)
        busy.write("orders_upper", 60)
        after = look(cluster)
    ends = {where: (before.partitions[where].end, found.end) for where, found in after.partitions.items()}
    assert sum(now - was for (topic, _), (was, now) in ends.items() if topic == "orders_upper") == 60
    assert after.at > before.at


def test_what_may_not_be_seen_is_told_and_the_rest_is_shown(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "ListGroups")

    monkeypatch.setattr(look_module, "_groups", refused)
    result = top(busy, "--once")
    assert result.exit_code == 0
    assert "CLUSTER_AUTHORIZATION_FAILED" in result.output and "clicks" in result.output


def test_a_topic_that_is_deleted_meanwhile_is_left_out(busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Cluster.metadata
    calls = []

    def with_a_ghost(cluster: Cluster, topics: Any, **more: Any) -> Any:
        found = metadata(cluster, topics, **more)
        if topics is None:
            calls.append(found)
            if len(calls) == 1:
                found.topics["ghost"] = dataclasses.replace(found.topics["clicks"], name="ghost")
        return found

    with Cluster(client_config(busy.bootstrap, None, PATIENCE_S)) as cluster:
        monkeypatch.setattr(Cluster, "metadata", with_a_ghost)
        assert set(TOPICS) <= {topic for topic, _ in look(cluster).partitions}
    assert len(calls) == 2


def test_bad_input_is_told(busy: Busy) -> None:
    assert "give --once or --batch" in top(busy).stderr
    assert top(busy).exit_code == 2
    assert top(busy, "--once", "--sort", "colour").exit_code == 2
    unreachable = CliRunner().invoke(
        main, ["top", "--once", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2"]
    )
    assert unreachable.exit_code == 1 and "no broker reached" in unreachable.stderr


class Terminal:
    """A terminal with `eoslog top` in it."""

    def __init__(self, place: int, process: subprocess.Popen[bytes]) -> None:
        self.place, self.process = place, process
        self.text = ""

    def wait_for(self, pattern: str) -> None:
        """Until what was drawn since the last wait matches."""
        end = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < end, f"no {pattern} in:\n{self.text}"
            assert self.process.poll() is None, f"top ended with {self.process.returncode}:\n{self.text}"
            if select.select([self.place], [], [], 1.0)[0]:
                with suppress(OSError):  # it has ended: told above, the next time round
                    self.text += os.read(self.place, 65536).decode(errors="replace")
        self.text = ""

    def press(self, key: str) -> None:
        os.write(self.place, key.encode())

    def ended(self) -> int:
        """The exit status; what is still drawn is read, or the process could not end."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, "top did not end"
            if select.select([self.place], [], [], 0.1)[0]:
                with suppress(OSError):  # nobody holds the other end any more
                    os.read(self.place, 65536)
        return self.process.returncode


@contextmanager
def terminal(bootstrap: str, *more: str) -> Iterator[Terminal]:
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 130, 0, 0))
    command = [
        sys.executable,
        "-m",
        "eoslog",
        "top",
        "--interval",
        "0.2",
        "--bootstrap-server",
        bootstrap,
    ]
    around = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
    process = subprocess.Popen(
        [*command, *more], stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
        env={**around, "TERM": "xterm-256color"}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    os.close(inner)
    try:
        yield Terminal(outer, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(outer)


def test_the_live_view_answers_to_keys_and_ends(busy: Busy) -> None:
    with terminal(busy.bootstrap) as shown:
        shown.wait_for("topics by records")
        shown.press("n")
        shown.wait_for("topics by name")
        shown.press("i")
        shown.wait_for("__consumer_offsets")
        shown.press("/CLICKS")
        shown.wait_for("/CLICKS_  Enter keeps it")
        shown.press("\n")
        shown.wait_for("filter: CLICKS")
        shown.press("\x1b[A")  # an arrow is not Esc
        shown.press("t")
        shown.wait_for("filter: CLICKS")
        shown.press("\x1b")
        shown.wait_for("dashboard")
        shown.press("f")
        shown.wait_for("f fold")
        shown.press("q")
        assert shown.ended() == 0


def test_an_interrupt_ends_the_live_view(busy: Busy) -> None:
    with terminal(busy.bootstrap) as shown:
        shown.wait_for("topics by records")
        shown.process.send_signal(signal.SIGINT)
        assert shown.ended() == 0


def test_the_live_view_outlives_its_brokers() -> None:
    with EmbeddedBroker(timeout=60) as broker, terminal(broker.bootstrap) as shown:
        shown.wait_for("open transactions|topics by|partitions")
        broker.stop()
        shown.wait_for("did not answer")
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("afterwards", 1, 1)])["afterwards"].result(PATIENCE_S)
        shown.wait_for("afterwards")
        shown.press("q")
        assert shown.ended() == 0


def test_the_picture_of_the_docs(busy: Busy, tmp_path: Path) -> None:
    """One made here and the one in docs/: a whole SVG, not too large, with nothing fetched from outside."""
    made = tmp_path / "top.svg"
    draw(busy, made)
    for path in (made, SVG):
        text = path.read_text()
        assert 2_000 < len(text) < LARGEST, f"{path}: {len(text)} bytes"
        words = "".join(ElementTree.fromstring(text).itertext()).replace("\xa0", " ")
        for word in (*TOPICS, "dashboard", OPEN, "records/s", "open transactions"):
            assert word in words, f"{path} does not show {word}: make top-picture"
        assert not re.search(r"""(href|src|url)\s*[=(]\s*["']?https?:""", text)


# -- 500 groups and 2,000 ids --------------------------------------------------------------------
# `eoslog top` on a broker with 500 groups and 2,000 transactional ids, in a terminal of 80 times 24.

MANY_RECORDS, WIDTH, LINES = 600, 80, 24
MOST_CPU_S = 0.5
"""Of a screen, from the look to the last line: computing time, since the machine may stand still."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(timeout=MANY_WAIT_S) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(MANY_WAIT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(MANY_RECORDS):
            producer.produce("orders", b"v")
        assert producer.flush(MANY_WAIT_S) == 0
        fill(broker.bootstrap, "orders", MANY_RECORDS)
        yield broker.bootstrap


@pytest.fixture(scope="module")
def seen(bootstrap: str) -> ClusterSnapshot:
    with Cluster(client_config(bootstrap, None, MANY_WAIT_S)) as cluster:
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


def top_of_many(bootstrap: str, *arguments: str) -> str:
    given = ["top", "--once", "--interval", "0.1", "--bootstrap-server", bootstrap, *arguments]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_page_is_filtered_sorted_and_folded_by_options(bootstrap: str) -> None:
    names = firsts(top_of_many(bootstrap, "--filter", "job-", "--sort", "name").splitlines())
    assert "GROUP" in names and not any(name.startswith("job-") for name in names), "none of them is open"
    names = firsts(top_of_many(bootstrap, "--filter", "Reader", "--sort", "name").splitlines())
    assert [name for name in names if "reader" in name] == sorted(map(reader, range(READERS)))
    names = firsts(top_of_many(bootstrap).splitlines())
    assert sorted(name for name in names if name.startswith("copy")) == sorted(
        sink(n).id for n in range(SINKS)
    )
    names = firsts(top_of_many(bootstrap, "--all", "--filter", "copy-1").splitlines())
    assert names.count("copy-1") == 1 and "copy-1/finished" in names and "copy-1/5.0/0/w.0" in names
    (sink_,) = json.loads(top_of_many(bootstrap, "--json", "--filter", "copy-1"))["sinks"]
    assert (sink_["sink"], sink_["ids"], sink_["open"], sink_["groups"]) == ("copy-1", IDS_OF_A_SINK, 3, 2)
    assert OTHER_IDS + SINKS * IDS_OF_A_SINK == 2000
