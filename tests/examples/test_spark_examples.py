"""The examples that start Spark, the notebook, and the demo."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import sqlite3
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from nbclient import NotebookClient
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from eoslog.avro import SchemaRegistry, decode, encode
from eoslog.cli import main
from eoslog.testing import EmbeddedBroker, Fault
from examples.avro_orders import INVOICE, ORDER
from examples.flights.audit import Verdict
from examples.flights.view import closing as closing_of_the_demo
from examples.registry import SmallRegistry
from tests.examples.running import PATIENCE_S, Script, command_of, committed, create, environment, put
from tests.examples.test_plain import SENTENCES, WORDS
from tests.kit.kafka_nodes import spark_kafka
from tests.kit.program import ROOT
from tests.scenarios.apache_kafka import ApacheKafka
from tests.svg import PICTURES

# -- examples --------------------------------------------------------------------------------------
# The examples of docs/examples.md that start Spark, as the page says, and killed: make test-examples.
#
# Scripts that are killed have a Spark process of their own; the others
# share a session here, which their `getOrCreate()` finds.


SMALL = "--conf spark.ui.enabled=false --conf spark.driver.memory=600m --conf spark.log.level=ERROR"
SLOW_STARTS = 8


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """One for each example, as their topics share names."""
    with EmbeddedBroker(in_thread=True, flush="os") as started:
        yield started


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """With the jars of Spark's own connector, for the migration."""
    jars = ",".join(map(str, sorted(spark_kafka().glob("*.jar"))))
    assert jars, f"no jars in {spark_kafka()}: make test-examples fetches them"
    os.environ.update(environment())
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "800m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def run(broker: EmbeddedBroker, place: Path, name: str, *more: str) -> None:
    """An example of the page in the session that is there. Options of `more` win over the page's."""
    places = {"./checkpoint": str(place / "checkpoint"), "./spent.db": str(place / "spent.db")}
    _, path, *words = command_of(name, places)
    words = [path, *words, "--bootstrap", broker.bootstrap, *more]
    for tries_left in reversed(range(SLOW_STARTS)):
        try:
            with patch.object(sys, "argv", words):
                runpy.run_path(path, run_name="__main__")
        except SystemExit as ended:
            assert ended.code == 0
            return
        except PySparkException as error:
            if not tries_left or not gave_up(str(error)):
                raise


def script(broker: EmbeddedBroker, place: Path, name: str, *more: str) -> Script:
    """An example of the page as a process with a session of its own, to be killed."""
    submit = f"--master local[2] {SMALL} pyspark-shell"
    command = [*command_of(name, {}), "--bootstrap", broker.bootstrap, *more]
    return Script(place, command, PYSPARK_SUBMIT_ARGS=submit)


def killed(broker: EmbeddedBroker, fault: Fault, place: Path, name: str, *more: str) -> None:
    """The same, killed when the fault has happened."""
    for tries_left in reversed(range(SLOW_STARTS)):
        started = script(broker, place, name, *more)
        try:
            started.kill_when(fault)
            return
        except AssertionError:
            started.kill()
            if not tries_left or not gave_up(started.errors()):
                raise


def gave_up(error: str) -> bool:
    """Whether Spark, which gives a Python process 10 s to come up, gave one up on a busy machine; the
    script is then started again, with its checkpoint."""
    return any(one in error for one in ("connect back", "CANNOT_OPEN_SOCKET"))


def values(broker: EmbeddedBroker, topic: str) -> list[str]:
    return sorted(row.value for row in committed(broker.bootstrap, topic))


@pytest.mark.kafka
@pytest.mark.timeout(3 * PATIENCE_S)
def test_dead_letters(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    for topic in ("orders", "orders_north", "orders_south", "orders_dead"):
        create(broker.bootstrap, topic)
    orders = [
        json.dumps({"id": number, "region": ("north", "south", "moon")[number % 3]}) for number in range(9)
    ]
    wrong = json.dumps({"id": 9, "region": "north", "amount": -5})
    put(broker.bootstrap, "orders", [("k", one) for one in [*orders, "no JSON", "{}", wrong]])
    run(broker, tmp_path, "dead_letters.py")
    assert values(broker, "orders_north") == orders[::3] and values(broker, "orders_south") == orders[1::3]
    assert values(broker, "orders_dead") == sorted([*orders[2::3], "no JSON", "{}", wrong])
    reasons = [row.headers["deadletter.reason"] for row in committed(broker.bootstrap, "orders_dead")]
    assert reasons.count("amount -5.0") == 1 and len(reasons) == 6


@pytest.mark.kafka
@pytest.mark.timeout(3 * PATIENCE_S)
def test_join_and_route(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    for topic in ("orders", "payments", "settled", "short", "ledger"):
        create(broker.bootstrap, topic)
    now = 1_790_000_000_000
    put(broker.bootstrap, "orders", [(f"o{n}", '{"amount": 10}') for n in range(20)], timestamp=now)
    paid = [(f"o{n}", json.dumps({"amount": 9 + n % 2})) for n in range(15)]
    put(broker.bootstrap, "payments", [*paid, ("nobody", '{"amount": 1}')], timestamp=now + 60_000)
    run(broker, tmp_path, "join_and_route.py")
    settled, short, ledger = (committed(broker.bootstrap, topic) for topic in ("settled", "short", "ledger"))
    assert sorted(row.key or "" for row in settled) == sorted(f"o{n}" for n in range(15) if n % 2)
    assert sorted(row.key or "" for row in short) == sorted(f"o{n}" for n in range(15) if not n % 2)
    assert sorted(ledger) == sorted([*settled, *short])
    group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "settlement"})
    stood = group.committed([TopicPartition("orders", 0), TopicPartition("payments", 0)], 60)
    group.close()
    assert [one.offset for one in stood] == [20, 16]


@pytest.mark.kafka
@pytest.mark.timeout(3 * PATIENCE_S)
def test_migrate(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker.bootstrap, "orders", 2)
    for connector, first in (("kafka", 0), ("eoslog", 100)):
        put(broker.bootstrap, "orders", [(str(n), f"order {n:03}") for n in range(first, first + 100)])
        run(broker, tmp_path, "migrate.py", "--connector", connector)
    assert values(broker, "orders_copy") == [f"order {n:03}" for n in range(200)]


def spent(place: Path) -> list[tuple[str, int, int]]:
    with closing(sqlite3.connect(place / "spent.db")) as connection:
        return connection.execute("select * from spent order by customer").fetchall()


@pytest.mark.kafka
@pytest.mark.timeout(3 * PATIENCE_S)
def test_upsert(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker.bootstrap, "orders", 2)
    put(broker.bootstrap, "orders", [(f"c{n % 4}", json.dumps({"amount": n})) for n in range(40)])
    run(broker, tmp_path, "upsert.py")
    right = [(f"c{c}", 10, sum(range(c, 40, 4))) for c in range(4)]
    assert spent(tmp_path) == right
    notes = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda note: int(note.name))
    notes[-1].unlink()  # as if the driver had died between the database's commit and its own note
    (notes[-1].parent / f".{notes[-1].name}.crc").unlink()
    run(broker, tmp_path, "upsert.py")
    assert (tmp_path / "checkpoint" / "commits" / notes[-1].name).exists(), "the batch did not run again"
    assert spent(tmp_path) == right


@pytest.mark.kafka
@pytest.mark.timeout(3 * PATIENCE_S)
def test_avro(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Orders of two schemas in one topic: the older one has no currency."""
    older = ORDER | {"fields": ORDER["fields"][:-1]}
    create(broker.bootstrap, "orders_avro")
    with SmallRegistry() as stand_in:
        registry = SchemaRegistry(stand_in.url)
        old = encode(pa.array([{"id": n, "price": 5, "pieces": n} for n in range(10)]), registry, "o", older)
        new = encode(pa.array([{"id": 10, "price": 7, "pieces": 2, "currency": "SEK"}]), registry, "o", ORDER)
        both = [*old.to_pylist(), *new.to_pylist()]
        put(broker.bootstrap, "orders_avro", [(f"c{n}", one) for n, one in enumerate(both)])
        put(broker.bootstrap, "orders_avro", [("bad", b"no Avro"), ("worse", None)])
        run(broker, tmp_path, "avro_orders.py", "--registry", stand_in.url)
        written = committed(broker.bootstrap, "invoices_avro")
        messages = [row.value for row in written]
        invoices = decode(
            pa.array([one.encode("latin-1") for one in messages]), registry, INVOICE
        ).to_pylist()
    found = sorted((one["id"], one["total"], one["currency"]) for one in invoices)
    assert found == [*((n, 5 * n, "EUR") for n in range(10)), (10, 14, "SEK")]
    assert sorted(str(row.key) for row in written) == sorted(f"c{n}" for n in range(11))
    (dead,) = committed(broker.bootstrap, "orders_avro_dead")
    assert (dead.key, dead.value) == ("bad", "no Avro")
    assert dead.headers["deadletter.reason"].startswith("not a message in Confluent's wire format")
    assert (
        dead.headers["deadletter.source.topic"] == "orders_avro" and dead.headers["deadletter.source.offset"]
    )
    assert stand_in.asked.count("GET /schemas/ids/1") <= 2, "once in each worker"


@pytest.mark.kafka
@pytest.mark.timeout(3 * PATIENCE_S)
def test_windows(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker.bootstrap, "readings", 2)
    readings = [
        (f"device {n % 3}", json.dumps({"at": 1_790_000_000 + 5 * n, "reading": n})) for n in range(240)
    ]
    put(broker.bootstrap, "readings", readings)
    few = ("--rows-per-batch", "60")
    run(broker, tmp_path, "windows.py", *few, "--target", "undisturbed")
    undisturbed = values(broker, "undisturbed")
    again = (*few, "--target", "killed", "--checkpoint", str(tmp_path / "other"))
    fault = broker.faults.drop_answer("EndTxn", nth=2, cut=False)
    killed(broker, fault, tmp_path, "windows.py", *again)
    run(broker, tmp_path, "windows.py", *again)
    assert len(undisturbed) > 40 and values(broker, "killed") == undisturbed


@pytest.mark.kafka
@pytest.mark.timeout(3 * PATIENCE_S)
def test_word_count(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker.bootstrap, "sentences", 2)
    put(broker.bootstrap, "sentences", ((str(number), one) for number, one in enumerate(SENTENCES)))
    few = ("--rows-per-batch", "40")
    fault = broker.faults.drop_answer("EndTxn", nth=3, cut=False)
    killed(broker, fault, tmp_path, "word_count_spark.py", *few)
    run(broker, tmp_path, "word_count_spark.py", *few)
    rows = committed(broker.bootstrap, "word_counts")
    latest = {row.key: int(row.value) for row in rows}
    assert latest == WORDS
    batches = {row.value for row in rows if row.key == "the"}
    for word in ("the", "fox", "jumps", "lazy"):  # in each sentence: each micro-batch counts more of them
        counts = [int(row.value) for row in rows if row.key == word]
        assert len(counts) == len(batches) > 1 and counts == sorted(set(counts)), f"{word}: {counts}"


# -- the mirror ----------------------------------------------------------------------------------
# The mirror of docs/examples.md from the bundled broker to Apache Kafka and back: make test-examples.
#
# The mirror is killed wherever it is when the target has got more records; test_plain.py kills it at each
# request.

RECORDS, PARTITIONS, KILLS = 4_000, 2, 4


def written(bootstrap: str) -> int:
    """How far the target's log goes, records of open transactions and markers included."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "looker", "isolation.level": "read_uncommitted"}
    looker = Consumer(settings)
    known = looker.list_topics(timeout=60).topics
    ends = [looker.get_watermark_offsets(TopicPartition("orders", p), 60)[1] for p in range(PARTITIONS)]
    looker.close()
    return sum(ends) if "orders" in known else 0


def mirror(source: str, target: str, place: Path) -> None:
    """Mirror `orders`, with kills, and audit the target."""
    changes = {"127.0.0.1:9092": source, "127.0.0.1:9093": target}
    command = [*command_of("mirror.py", changes), "--round", "50"]
    create(target, "orders", PARTITIONS)
    for _ in range(KILLS):
        before, script = written(target), Script(place, command)
        deadline = time.monotonic() + PATIENCE_S
        while script.process.poll() is None and written(target) < before + 200:
            assert time.monotonic() < deadline, "nothing is mirrored"
        script.kill()
    Script(place, command).ended()
    where = ["--from-bootstrap-server", source, "--to-bootstrap-server", target, "--timeout", "60"]
    done = CliRunner().invoke(main, ["audit", "--from", "orders", "--to", "orders", "--all-headers", *where])
    assert done.exit_code == 0 and f"right: {RECORDS:,} records" in done.output, done.output


@pytest.mark.kafka
@pytest.mark.timeout(3 * PATIENCE_S)
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("way", ["to Kafka", "from Kafka"])
def test_mirror(way: str, tmp_path: Path) -> None:
    with EmbeddedBroker() as bundled, ApacheKafka({}) as kafka:
        ends = (bundled.bootstrap, kafka.bootstrap)
        source, target = ends if way == "to Kafka" else ends[::-1]
        create(source, "orders", PARTITIONS)
        put(
            source,
            "orders",
            [(f"customer {n % 7}", f"order {n}") for n in range(RECORDS)],
            headers=[("a", b"1")],
        )
        mirror(source, target, tmp_path)


# -- the notebook ----------------------------------------------------------------------------------
# examples/exactly_once.ipynb from top to bottom: make test-examples.


CELL_S = 600


@pytest.mark.long
@pytest.mark.timeout(CELL_S)
def test_it_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setitem(os.environ, name, value)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.enabled=false pyspark-shell")
    read: Callable[..., Any] = nbformat.read
    notebook = read(ROOT / "examples" / "exactly_once.ipynb", as_version=4)
    NotebookClient(notebook, timeout=CELL_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]
    printed = "".join(one.text for one in outputs if one.output_type == "stream" and one.name == "stdout")
    print(printed)
    assert "exactly_once: 20000 rows, 0 lost, 0 doubled" in printed
    doubled = re.search(r"at_least_once: \d+ rows, 0 lost, (\d+) doubled", printed)
    assert doubled and int(doubled[1]) > 0, "the last batch did not run again"
    assert "right: 20,000 records" in printed
    assert sum("image/png" in one.get("data", {}) for one in outputs) == 2


# -- the demo --------------------------------------------------------------------------------------
# The demo on the first flights of the year: the same kills, the same auditor, and an audit that can fail.


ROOT_OF_THE_DEMO = Path(__file__).resolve().parents[2]
FLIGHTS = 30_000


def demo(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "examples.flights.run", "--data", str(folder), *args]
    command += ["--limit", str(FLIGHTS), "--rate", "3000", "--rows-per-batch", "3000"]
    return subprocess.run(
        command, cwd=ROOT_OF_THE_DEMO, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_every_flight_once_through_three_kills(tmp_path: Path) -> None:
    done = demo(tmp_path / "demo", "--guarantee", "exactly_once")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "every flight exactly once" in done.stdout
    assert all(f"killed {what}" in done.stdout for what in ("the broker", "the Spark", "a Python worker"))


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_at_least_once_doubles_and_the_audit_says_so(tmp_path: Path) -> None:
    done = demo(tmp_path / "demo", "--guarantee", "at_least_once", "--expect-duplicates")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "not exactly once" in done.stdout


def test_the_picture_of_the_demo_shows_what_it_prints_now() -> None:
    """Every line of an audit that holds, and the three kills; nothing is fetched from outside."""
    text = (PICTURES / "demo.svg").read_text()
    shown = "".join(ElementTree.fromstring(text).itertext()).replace("\xa0", " ")
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(closing_of_the_demo(Verdict(336_776, 336_776), 3, 0.0, 0, "exactly_once"))
    printed = re.findall(r"[^│┌┐└┘─┬┴\n]+", re.sub(r"\d+ s, .* GiB", "", console.export_text()))
    for words in filter(None, map(str.strip, printed)):
        assert words in shown, f"the picture does not show {words!r}: make demo-picture"
    assert all(f"killed {what}" in shown for what in ("the broker", "the Spark", "a Python worker"))
    assert not re.search(r"""(href|src|url)\s*[=(]\s*["']?https?:""", text)
