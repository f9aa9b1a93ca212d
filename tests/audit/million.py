"""A million records and four copies of them: right, one lost, one doubled, one swapped. make audit-million.

Each copy is audited by a process of its own, as a user would; what it says is checked, its time and the most
memory it had are measured: a minute and 200 MB are the bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from eoslog.testing import EmbeddedBroker
from tests.audit.auditkit import HURTS, cluster_at, create, fill, hurt, split
from tests.scenarios.apache_kafka import ApacheKafka

SECONDS, MEGABYTES = 60, 200
_KIND_OF = {"nothing": None, "lost": "lost", "doubled": "doubled", "swapped": "reordered"}


class Cost(NamedTuple):
    """Seconds by the clock, seconds of one core, and the most memory in MB."""

    seconds: float
    cpu: float
    megabytes: float


_HIDING = """
import sys
hidden = sys.argv.pop(1)
class Hiding:
    def find_spec(self, name, *_):
        if name == hidden:
            raise ImportError(name)
sys.meta_path.insert(0, Hiding())
"""
"""A module is not found, as if it were not installed."""
_MEASURED = """
import atexit, pathlib, sys
from eoslog.cli import main
status, peak = pathlib.Path("/proc/self/status"), sys.argv.pop(1)
atexit.register(lambda: pathlib.Path(peak).write_text(status.read_text()))
main()
"""
"""The command, which writes down its own peak: wait4 tells that of its parent, where that was larger."""


def audit(bootstrap: str, target: str, *more: str, without: str = "") -> tuple[Any, int, Cost]:
    """One run of eoslog audit, see `measured`."""
    given = ["--from", "orders", "--to", target, "--bootstrap-server", bootstrap, "--json", *more]
    return measured(["audit", *given], without)


def measured(given: list[str], without: str = "") -> tuple[Any, int, Cost]:
    """The report, the exit status, and the cost of one run of a command. `without`: a module to hide."""
    with tempfile.NamedTemporaryFile("r") as peak, tempfile.TemporaryFile() as output:
        command = [sys.executable, "-c", _HIDING + _MEASURED, without, peak.name, *given]
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            sys.exit(f"eoslog {' '.join(given)} ended with {process.returncode}")
        output.seek(0)
        (kilobytes,) = (line.split()[1] for line in peak if line.startswith("VmHWM:"))
        cost = Cost(seconds, usage.ru_utime + usage.ru_stime, int(kilobytes) / 1024)
        return json.load(output), process.returncode, cost


def judge(how: str, report: Any, status: int, count: int) -> list[str]:
    """What is wrong with an audit of a copy that is hurt so."""
    kind = _KIND_OF[how]
    kinds = {name: report["counts"][name] for name in ("lost", "doubled", "reordered", "foreign")}
    expected = {name: int(name == kind) for name in kinds}
    wrong = [] if kinds == expected else [f"found {kinds}"]
    wrong += [] if status == (0 if kind is None else 1) else [f"exit status {status}"]
    return wrong + ([] if report["counts"]["source"] == count else [f"{report['counts']['source']} records"])


def measure(bootstrap: str, count: int, value_bytes: int, more: list[str]) -> bool:
    """Fill, audit, print; whether all was as it should be."""
    fine = True
    with cluster_at(bootstrap) as cluster:
        create(cluster, "orders")
        fill(cluster, "orders", split(count), value_bytes)
        print(f"{count:,} records of {value_bytes} bytes in 4 partitions; audit {' '.join(more)}")
        for how in HURTS:
            topic = f"copy-{how}"
            create(cluster, topic)
            parts = split(count)
            parts[1] = hurt(how, parts[1])
            fill(cluster, topic, parts, value_bytes)
            report, status, cost = audit(bootstrap, topic, *more)
            wrong = judge(how, report, status, count)
            wrong += [f"above {SECONDS} s"] if cost.seconds > SECONDS else []
            wrong += [f"above {MEGABYTES} MB"] if cost.megabytes > MEGABYTES else []
            _print(how, cost, wrong, report)
            fine &= not wrong
    return fine


def _print(how: str, cost: Cost, wrong: list[str], report: Any) -> None:
    verdict = f"WRONG: {', '.join(wrong)}" if wrong else "as it should be"
    others = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    figures = f"{cost.seconds:5.1f} s ({cost.cpu:.1f} s of a core; {others}), {cost.megabytes:.0f} MB"
    print(f"{how:>8}: {figures}, {verdict}", flush=True)
    for kind in ("lost", "doubled", "reordered"):
        for found in report[kind]:
            print(f"          {kind}: {json.dumps(found)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--broker", choices=["eoslog", "kafka"], default="eoslog")
    parser.add_argument("more", nargs="*", help="options of eoslog audit, behind --")
    given = parser.parse_args()
    os.chdir(Path(__file__).parents[2])
    broker = EmbeddedBroker() if given.broker == "eoslog" else ApacheKafka({})
    with broker as started:
        sys.exit(not measure(started.bootstrap, given.records, given.value_bytes, given.more))


if __name__ == "__main__":
    main()
