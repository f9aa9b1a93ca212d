"""What earlier versions have left opens: data of brokers that were killed, and checkpoints of queries.

`keep.py` made the files in `kept/`, by versions whose formats differ. `make test-upgrade` also goes back.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from eoslog.cli import main
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source.reader import StreamReader
from eoslog.testing import EmbeddedBroker
from tests.docs.test_rights import write_stream
from tests.kit.program import until
from tests.upgrade.keep import KEPT, ROWS, SMALL

FILES = sorted(path.name.removesuffix(".tar.xz") for path in KEPT.glob("*.tar.xz"))
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=FILES)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory as an earlier version has left it."""
    with tarfile.open(KEPT / f"{request.param}.tar.xz") as file:
        file.extractall(tmp_path, filter="data")
    return tmp_path


@contextlib.contextmanager
def opened(kept: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(kept / "data", config=SMALL) as broker:
        yield broker


def ran(broker: EmbeddedBroker, *arguments: str, given: str | None = None) -> str:
    """What a command of today prints."""
    command = [*arguments, "--bootstrap-server", broker.bootstrap]
    done = CliRunner().invoke(main, command, input=given)
    assert done.exit_code == 0, done.output
    return done.output


def rows(broker: EmbeddedBroker, topic: str) -> Counter[str]:
    """The committed rows of a topic."""
    return Counter(ran(broker, "consume", topic, "--from-beginning", "--to-end").split())


def numbers(*some: int) -> Counter[str]:
    return Counter(map(str, some))


def go_on(broker: EmbeddedBroker, checkpoint: Path) -> None:
    """The next micro-batch of the query whose checkpoint was kept, without Spark around it."""
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    reader = StreamReader(source_options(servers | {"subscribe": "orders"}, stream=True))
    into = {"topic": "copies", "transactional.id": "copy", "checkpointLocation": str(checkpoint)}
    number = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    start = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
    try:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        read = [
            [batch.select(["key", "value"]) for batch in reader.read(task)]
            for task in reader.partitions(start, end)
        ]
        line = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        (checkpoint / "offsets" / str(number + 1)).write_text("\n".join([*line[:2], json.dumps(end)]))
        write_stream(sink_options(servers | into, stream=True), number + 1, read)
        (checkpoint / "commits" / str(number + 1)).write_text("v1\n{}")
    finally:
        reader.stop()


def test_there_are_some() -> None:
    assert len(FILES) > 2


def test_a_broker_opens_what_was_left(kept: Path) -> None:
    with opened(kept) as broker:
        assert rows(broker, "orders") == rows(broker, "copies") == numbers(*range(ROWS))
        assert rows(broker, "latest") == numbers(0, 1, 2), "those behind are of a transaction that is open"
        billing = ran(broker, "groups", "describe", "billing").splitlines()[-1].split()
        assert billing[:5] == ["billing", "Empty", "orders", "0", "4"], billing
        listed = json.loads(ran(broker, "transactions", "list", "--json"))
        states = {row["transactional_id"]: row["state"] for row in listed}
        assert (states["first"], states["second"]) == ("CompleteAbort", "CompleteCommit")
        ran(broker, "produce", "latest", "--key-separator", ":", given="9:more\n")
        until(lambda: rows(broker, "latest") == numbers(0, 1, 2) + Counter(["more"]))  # after its time-out
    verified = CliRunner().invoke(main, ["log", "verify", str(kept / "data")])
    assert verified.exit_code == 0, verified.output
    assert "all is well" in verified.output


def test_a_query_goes_on_where_it_was(kept: Path) -> None:
    with opened(kept) as broker:
        ran(broker, "produce", "orders", given="new\nnewer\n")
        go_on(broker, kept / "checkpoint")
        assert rows(broker, "copies") == numbers(*range(ROWS)) + Counter(["new", "newer"])


# -- the service ---------------------------------------------------------------------------------

UNIT = ROOT / "packaging" / "eoslog-broker.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="only systemd can check its unit")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("eoslog")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/eoslog/bin/eoslog", str(program)))
    for asked in (["verify"], ["security", "--offline=yes", "--threshold=20"]):  # of 100; 79 without limits
        done = subprocess.run(
            ["systemd-analyze", *asked, str(unit)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout[-200:]


def test_what_the_page_types_before_the_start_is_what_the_unit_needs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "service.md").read_text()
    found = re.search(r"```bash\n(useradd.*?)```", page, re.DOTALL)
    assert found
    lines, unit = found[1].splitlines(), UNIT.read_text()
    user, program = re.search(r"User=(\w+)", unit), re.search(r"ExecStart=(\S+)/bin/eoslog", unit)
    assert user and lines[0].endswith(f" {user[1]}")
    assert program and f"python3 -m venv {program[1]}" in lines
    (written,) = (line for line in lines if line.startswith("printf"))
    target = re.search(r"--config-file (\S+)", unit)
    assert target and written.endswith(f"> {target[1]}")
    typed = written.replace(target[1], "server.properties")
    subprocess.run(["bash", "-e", "-c", typed], cwd=tmp_path, check=True, timeout=60)
    checked = [
        sys.executable,
        "-m",
        "eoslog",
        "broker",
        "--config-file",
        "server.properties",
        "--check-config",
    ]
    done = subprocess.run(checked, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "metrics.listen=127.0.0.1:9102" in done.stdout and "warning" not in done.stderr


def test_the_unit_s_command_can_be_typed(tmp_path: Path) -> None:
    (line,) = re.findall(r"(?m)^ExecStart=/opt/eoslog/bin/eoslog (.*)$", UNIT.read_text())
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=4\n")
    typed = line.replace("/etc/eoslog/server.properties", str(properties))
    typed = typed.replace("/var/lib/eoslog", str(tmp_path / "data"))
    done = CliRunner().invoke(main, [*shlex.split(typed), "--check-config"])
    assert done.exit_code == 0, done.output
    assert f"num.partitions=4  # {properties}" in done.output


# -- back ----------------------------------------------------------------------------------------

BACK = {"2026-11-22": "450f9fa", "2026-11-27": "51ce0e39"}
"""The commits of the versions that made the files."""
ACCEPTED = {"2026-11-22": "", "2026-11-27": "decisions-gone:6"}
"""What their queries are told when the decision of this version was deleted."""


@pytest.mark.long
@pytest.mark.parametrize("version", BACK)
def test_an_earlier_version_opens_what_this_one_wrote(version: str, tmp_path: Path) -> None:
    sources, place = tmp_path / "sources", tmp_path / "kept"
    sources.mkdir()
    packed = subprocess.run(
        ["git", "archive", BACK[version]], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "x", "-C", str(sources)], input=packed, check=True)
    with tarfile.open(KEPT / f"{version}.tar.xz") as file:
        file.extractall(place, filter="data")
    with opened(place) as broker:
        ran(broker, "produce", "orders", given="new\nnewer\n")
        go_on(broker, place / "checkpoint")
    there = numbers(*range(ROWS)) + Counter(["new", "newer"])
    stopped = earlier(sources, place)
    assert "broker: 12 rows" in stopped and "DecisionDamaged" in stopped, stopped
    with opened(place) as broker:
        assert rows(broker, "copies") == there, "it stops before it writes"
        ran(broker, "groups", "delete", "copy")
    gone_on = earlier(sources, place, ACCEPTED[version])
    assert "broker: 12 rows" in gone_on, gone_on
    with opened(place) as broker:
        assert rows(broker, "copies") == there + Counter(["last"] * 2), gone_on


def earlier(sources: Path, place: Path, accepted: str = "") -> str:
    """What that version says: its broker shows the rows, gets one more, and its query runs."""
    done = subprocess.run(
        [sys.executable, "-c", EARLIER, str(place), accepted],
        env=os.environ | {"PYTHONPATH": str(sources), "PYSPARK_PYTHON": sys.executable},
        cwd=ROOT / "tests" / "upgrade", capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


EARLIER = """
import sys
sys.path.insert(0, ".")
from pathlib import Path
from keep import SMALL, copy, eoslog
from confluent_kafka import Producer
from eoslog.testing import EmbeddedBroker

place = Path(sys.argv[1])
with EmbeddedBroker(place / "data", config=SMALL) as broker:
    typed = ("consume", "copies", "--from-beginning", "--to-end")
    print("broker:", len(eoslog(*typed, bootstrap=broker.bootstrap).split()), "rows", flush=True)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", "last")
    assert producer.flush(30) == 0
    copy(broker.bootstrap, place / "checkpoint", sys.argv[2])
"""
