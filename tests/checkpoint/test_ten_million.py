"""What it costs to foretell an edit over ten million records: time, and the most memory of the process.
make test-checkpoint runs it; -s prints the figures of docs/checkpoints.md."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from eoslog.client.admin.list_offsets import LATEST, list_offsets
from eoslog.testing import EmbeddedBroker
from tests.audit.filling import PARTITIONS, cluster_at, create, fill
from tests.checkpoint.plain_checkpoint import lines, plan

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
RECORDS, FILLS, VALUE_BYTES = 10_000_000, 20, 100
SECONDS, MEGABYTES = 60, 200

_MEASURED = """
import atexit, pathlib, sys
from eoslog.cli import main
status, peak = pathlib.Path("/proc/self/status"), sys.argv.pop(1)
atexit.register(lambda: pathlib.Path(peak).write_text(status.read_text()))
main()
"""
"""The command, which writes down its own peak: wait4 tells that of its parent, where that was larger."""


def test_an_edit_over_ten_million_records_is_foretold(tmp_path: Path) -> None:
    """Batch headers are counted, so it takes no more than to fetch them, and little memory."""
    with EmbeddedBroker(tmp_path / "data") as broker, cluster_at(broker.bootstrap) as cluster:
        create(cluster, "orders")
        each = RECORDS // FILLS // PARTITIONS
        for _ in range(FILLS):
            fill(cluster, "orders", [np.arange(each)] * PARTITIONS, VALUE_BYTES)
        where = [("orders", partition) for partition in range(PARTITIONS)]
        ends = list_offsets(cluster, dict.fromkeys(where, LATEST), committed=True)
        checkpoint = a_checkpoint(tmp_path / "checkpoint", {str(p): at for (_, p), at in ends.items()})
        peak = tmp_path / "peak"
        command = ["rewind", str(checkpoint), "--to", "earliest", "--dry-run", "--json"]
        command += ["--bootstrap-server", broker.bootstrap]
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-c", _MEASURED, str(peak), "checkpoint", *command], stdout=subprocess.PIPE
        )
        output, _ = process.communicate(timeout=600)
        seconds = time.monotonic() - began
    assert process.returncode == 0
    assert json.loads(output)["foretold"]["twice"] == RECORDS
    (kilobytes,) = (line.split()[1] for line in peak.read_text().splitlines() if line.startswith("VmHWM:"))
    megabytes = int(kilobytes) / 1024
    print(f"{RECORDS:,} records of {VALUE_BYTES} bytes: {seconds:.1f} s, {megabytes:.0f} MB")
    assert seconds < SECONDS and megabytes < MEGABYTES


def a_checkpoint(folder: Path, ends: dict[str, int]) -> Path:
    """Of a query that has read all."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q"}')
    plan(folder, 0, lines({"orders": ends}))
    return folder
