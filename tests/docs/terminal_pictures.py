"""Pictures of commands and what they print, for docs/pictures: audits of tables, rehearsals of three
clusters, an edited and a restored checkpoint, a shadow, and one that takes over. make command-pictures."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import decide, lines, plan
from tests.connector.brokers import DECISIONS, Kafka
from tests.connector.saved.saved_world import SavedWorld
from tests.kfake.kfake import Kfake
from tests.scenarios.apache_kafka import ApacheKafka
from tests.shadow.test_shadow import Shadow
from tests.shadow.test_take_over import Both
from tests.svg import PICTURES, save

WIDTH = 120
_STYLES = {
    "holds": "green",
    "fails": "bold red",
    "unknown": "yellow",
    "note": "cyan",
    "Error:": "bold red",
    "right:": "green",
    "WRONG:": "bold red",
    "DIFFERENT": "bold red",
    "equal:": "green",
}
"""By a line's first word."""


def draw(name: str, title: str, commands: Sequence[str], bootstrap: str, folder: Path) -> Path:
    """Type the commands in the folder, and keep what they print. They find the cluster by themselves, as one
    at the usual address."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for number, command in enumerate(commands):
        console.print(Text(("\n" if number else "") + f"$ {command}", style="bold"))
        for line in _printed(command, bootstrap, folder).splitlines():
            text = Text(line)
            word = line.partition(" ")[0]
            text.stylize(_STYLES.get(word, ""), 0, len(word))
            console.print(text)
    path = PICTURES / f"{name}.svg"
    save(console, path, title)
    return path


def _printed(command: str, bootstrap: str, folder: Path) -> str:
    program, *arguments = shlex.split(command)
    assert program == "eoslog"
    eoslog = Path(sys.executable).with_name("eoslog")
    done = subprocess.run(
        [eoslog, *arguments, "--bootstrap-server", bootstrap],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        env=os.environ | {"COLUMNS": str(WIDTH)},
    )  # fmt: skip
    return done.stdout


def audits(folder: Path) -> Path:
    """A table as it should be, and one whose plain writer died behind a file and wrote it again."""
    rows = [{"topic": "orders", "partition": 0, "offset": at, "value": f"{at}"} for at in range(1000)]
    with EmbeddedBroker() as broker:
        kafka = Kafka(broker.bootstrap)
        kafka.put(kafka.topic(1, "orders"), [b"%d" % at for at in range(1000)])
        for table in ("lake", "hurt"):
            (folder / table).mkdir()
            pq.write_table(pa.Table.from_pylist(rows), folder / table / "part-0.parquet")
        pq.write_table(pa.Table.from_pylist(rows[997:]), folder / "hurt" / "part-1.parquet")
        commands = [f"eoslog audit orders --to parquet:{table}" for table in ("lake", "hurt")]
        return draw("audit", "eoslog audit", commands, broker.bootstrap, folder)


def rehearsals(folder: Path) -> list[Path]:
    """The bundled broker, Apache Kafka, and a broker that is not fit."""
    drawn = []
    with EmbeddedBroker() as broker:
        title = "eoslog rehearse: the bundled broker"
        drawn.append(draw("rehearse-eoslog", title, ["eoslog rehearse"], broker.bootstrap, folder))
    with ApacheKafka({}) as kafka:
        title = "eoslog rehearse: Apache Kafka 4.3.1"
        drawn.append(draw("rehearse-kafka", title, ["eoslog rehearse"], kafka.bootstrap, folder))
    with Kfake({}) as kfake:
        Kafka(kfake.bootstrap).topic(3, DECISIONS)
        command = f"eoslog rehearse --decision-topic {DECISIONS}"
        title = "eoslog rehearse: kfake of franz-go"
        drawn.append(draw("rehearse-kfake", title, [command], kfake.bootstrap, folder))
    return drawn


def edited_checkpoint(folder: Path) -> Path:
    """A query that stands at 20 of 30 rows is set back by 15, and again where it was."""
    checkpoint = folder / "checkpoint"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
    for batch, end in enumerate((10, 20)):
        plan(checkpoint, batch, lines({"orders": {"0": end}}))
    with EmbeddedBroker() as broker:
        kafka = Kafka(broker.bootstrap)
        kafka.put(kafka.topic(1, "orders"), [b"%d" % number for number in range(30)])
        with Cluster(ClientConfig((("127.0.0.1", broker.port),))) as cluster:
            decide(cluster, checkpoint, "orders", 1)
        rewind = "eoslog checkpoint rewind checkpoint --by 15"
        commands = [
            "eoslog checkpoint show checkpoint", rewind, f"{rewind} --accept-duplicates 15",
            "eoslog checkpoint show checkpoint", "eoslog checkpoint undo checkpoint",
        ]  # fmt: skip
        return draw("checkpoint", "eoslog checkpoint", commands, broker.bootstrap, folder)


def shadow_report(folder: Path) -> Path:
    """A new version's rows differ from its fourth batch on."""
    with EmbeddedBroker() as broker:
        kafka = Kafka(broker.bootstrap)
        shadow = Shadow(kafka, folder / "checkpoint-v2", batches=5, wrong=33)
        commands = ["eoslog shadow report checkpoint-v2", "eoslog shadow report checkpoint-v2 --from-batch 4"]
        assert shadow.place.exists()
        return draw("shadow", "eoslog shadow report", commands, broker.bootstrap, folder)


def shadow_takes_over(folder: Path) -> Path:
    """It has closed windows that the running query has not."""
    with EmbeddedBroker() as broker:
        names = "orders", "totals", "totals_v2"
        both = Both(Kafka(broker.bootstrap), folder / "checkpoint-v2", batches=5, names=names)
        both.close_windows()
        take_over = "eoslog shadow take-over checkpoint-v2"
        commands = [f"{take_over} --dry-run", take_over, "eoslog checkpoint show checkpoint-v2"]
        return draw("take-over", "eoslog shadow take-over", commands, broker.bootstrap, folder)


def restored_checkpoint(folder: Path) -> Path:
    """A query that saves its state every three batches loses its checkpoint."""
    with EmbeddedBroker() as broker:
        world = SavedWorld(broker, folder / "checkpoint", every=3)
        world.kafka.put(world.kafka.topic(1, "in"), [b"%d" % number for number in range(80)])
        for number in range(6):
            world.decide(number)
        world.lose()
        restore = f"eoslog checkpoint restore checkpoint --transactional-id {world.sink.id}"
        commands = [restore, "eoslog checkpoint show checkpoint"]
        return draw("state", "eoslog checkpoint restore", commands, broker.bootstrap, folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        folders = [Path(tempfile.mkdtemp(dir=made)) for _ in range(6)]
        drawings: list[Callable[[], list[Path]]] = [
            lambda: [audits(folders[0])],
            lambda: [edited_checkpoint(folders[1])],
            lambda: [shadow_report(folders[2])],
            lambda: [shadow_takes_over(folders[3])],
            lambda: [restored_checkpoint(folders[4])],
            lambda: rehearsals(folders[5]),
        ]
        for drawing in drawings:
            for drawn in drawing():
                print(f"{drawn}: {drawn.stat().st_size} bytes")
