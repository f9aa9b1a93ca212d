"""A million rows of a running query, and its shadow's: right, with one row lost, with one doubled.
make shadow-million.

The checkpoint of the shadow is made by hand, with a hundred batches, as many as Spark keeps. The command runs
in a process of its own; what it says is checked, its time and the most memory that it had are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.connector.offsets.offsets import Offsets, ShadowCut, to_json
from eoslog.testing import EmbeddedBroker
from tests.audit.auditkit import PARTITIONS, Numbers, cluster_at, create, fill, hurt, split
from tests.audit.million import MEGABYTES, SECONDS, measured

BATCHES = 100
HURT_PARTITION = 1
HURTS = ("nothing", "lost", "doubled")


def ends(topic: str, how: str, parts: list[Numbers], batch: int, base: int) -> Offsets:
    """Where a topic's rows end after so many batches. `base`: the offset of its first row."""
    found = {}
    for partition, numbers in enumerate(parts):
        at = len(numbers) * batch // BATCHES
        if partition == HURT_PARTITION and at > len(numbers) // 2 + 7:
            at += {"nothing": 0, "lost": -1, "doubled": 1}[how]
        found[topic, partition] = base + at
    return found


def make_checkpoint(place: Path, topic: str, how: str, parts: list[Numbers], base: int) -> None:
    """A checkpoint in Spark's layout; its first batch says where the second begins."""
    for folder in ("offsets", "commits"):
        (place / folder).mkdir(parents=True)
    (place / "metadata").write_text('{"id":"made-by-hand"}')
    for batch in range(BATCHES + 1):
        written = ends("totals", "nothing", parts, batch, base)
        cut = ShadowCut("v1", "g", batch + 1, written, ends(topic, how, parts, max(batch - 1, 0), base))
        source = ("orders", 0)
        end = to_json({source: batch}, began=None if batch else {source: 0}, shadow=cut)
        (place / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        (place / "commits" / str(batch)).write_text("v1\n{}")


def wrong_with(how: str, said: Any, status: int, count: int) -> list[str]:
    """What is wrong with the report on a shadow that is hurt so."""
    expected = {"missing": int(how == "lost"), "extra": int(how == "doubled"), "late": 0, "running": count}
    found = {name: said["counts"][name] for name in expected}
    wrong = [] if found == expected else [f"found {found}"]
    hurt_in = None if how == "nothing" else BATCHES // 2 + 1
    wrong += [] if said["differs_first_in_batch"] == hurt_in else [f"in {said['differs_first_in_batch']}"]
    return wrong + ([] if status == int(how != "nothing") else [f"exit status {status}"])


def measure(bootstrap: str, count: int, value_bytes: int, folder: Path) -> bool:
    """Fill, compare, print; whether all was as it should be."""
    fine = True
    with cluster_at(bootstrap) as cluster:
        create(cluster, "totals")
        parts = split(count)
        fill(cluster, "totals", parts, value_bytes)
        places = [("totals", partition) for partition in range(PARTITIONS)]
        stand = list_offsets(cluster, dict.fromkeys(places, LATEST), committed=True)
        (base,) = {stand["totals", p] - len(numbers) - 1 for p, numbers in enumerate(parts)}  # 1: a marker
        print(f"{count:,} rows of {value_bytes} bytes in {PARTITIONS} partitions, {BATCHES} batches")
        for how in HURTS:
            create(cluster, f"shadow-{how}")
            written: list[Numbers] = [np.copy(numbers) for numbers in parts]
            written[HURT_PARTITION] = hurt(how, parts[HURT_PARTITION])
            fill(cluster, f"shadow-{how}", written, value_bytes)
            make_checkpoint(folder / how, f"shadow-{how}", how, parts, base)
            given = ["shadow", "report", str(folder / how), "--bootstrap-server", bootstrap, "--json"]
            said, status, cost = measured(given)
            wrong = wrong_with(how, said, status, count)
            bound = SECONDS * max(count / 1_000_000, 1)
            wrong += [f"above {bound:.0f} s"] if cost.seconds > bound else []
            wrong += [f"above {MEGABYTES} MB"] if cost.megabytes > MEGABYTES else []
            verdict = f"WRONG: {', '.join(wrong)}" if wrong else "as it should be"
            load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
            print(f"{how:>8}: {cost.seconds:5.1f} s ({cost.cpu:.1f} s of a core; {load}), "
                  f"{cost.megabytes:.0f} MB, {verdict}", flush=True)  # fmt: skip
            fine &= not wrong
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    given = parser.parse_args()
    with EmbeddedBroker() as started, tempfile.TemporaryDirectory(prefix="eoslog-shadow-") as folder:
        sys.exit(not measure(started.bootstrap, given.records, given.value_bytes, Path(folder)))


if __name__ == "__main__":
    main()
