"""Records the order of calls of real Spark, on the bundled broker, into recorded/<scenario>.json.

    python -m tests.histories.record_spark            # all scenarios
    python -m tests.histories.record_spark fresh      # one

To be run once for each version of Spark; test_recordings.py plays the same scenarios in the imitation.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eoslog.testing import EmbeddedBroker
from tests.histories.sessions import kill_session

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"


@dataclass(frozen=True)
class Life:
    """One application. `rows` are produced before it starts; `strike`: as in recorded_source.py.

    `trigger`: "now" is availableNow, "always" runs until `batches` batches are complete and is then stopped.
    """

    rows: int = 0
    strike: str = ""
    trigger: str = "now"
    batches: int = 0
    starting: str = "earliest"
    each: bool = False


SCENARIOS: dict[str, list[Life]] = {
    "fresh": [Life(rows=4)],
    "nothing new": [Life(rows=4), Life()],
    "more": [Life(rows=4), Life(rows=4)],
    "at latest": [Life(rows=4, starting="latest"), Life(rows=4, starting="latest")],
    "stopped between batches": [Life(rows=4, trigger="always", batches=1)],
    "killed in partitions": [Life(rows=4, strike="kill partitions 1"), Life()],
    "killed in begin": [Life(rows=4, strike="kill begin 1"), Life()],
    "killed in a task": [Life(rows=4, strike="kill write 1"), Life()],
    "killed in commit": [Life(rows=4, strike="kill commit 1"), Life()],
    "killed after commit": [Life(rows=4, strike="kill committed 1"), Life()],
    "second batch killed": [Life(rows=4), Life(rows=4, strike="kill commit 1"), Life(rows=4)],
    "a task fails": [Life(rows=4, strike="fail write 1"), Life()],
    "stopped in a task": [Life(rows=4, trigger="stop", strike="wait write 1"), Life()],
    "for each batch": [Life(rows=4, each=True), Life(rows=4, each=True)],
}


def app(given: str) -> None:
    """A Spark application: one life."""
    from pyspark.sql import SparkSession

    from tests.histories.recorded_source import RecordedSource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    told = json.loads(given)
    life = Life(**told["life"])
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.dataSource.register(RecordedSource)
    diary = {f"diary.{name}": told[name] for name in ("file", "checkpoint")} | {"diary.strike": life.strike}
    servers = {"kafka.bootstrap.servers": told["servers"]}
    rows = (
        spark.readStream.format("recorded")
        .options(**servers, **diary, subscribe="in", startingOffsets=life.starting)
        .option("small.batch.max.offsets", "0")
        .load()
        .select("value")
    )
    sink = {**servers, **diary, "topic": "out"}
    write = rows.writeStream.option("checkpointLocation", told["checkpoint"])
    if life.each:
        write = write.foreachBatch(
            lambda batch, number: (
                batch.write.format("recorded")
                .mode("append")
                .options(**sink, **{"write.token": f"job-{number}"})
                .save()
            )
        )
    else:
        write = write.format("recorded").options(**sink)
    write = write.trigger(availableNow=True) if life.trigger == "now" else write
    query = write.start()
    if life.trigger == "now":
        query.awaitTermination()
    commits = Path(told["checkpoint"]) / "commits"
    while life.trigger == "always" and not (commits / str(life.batches - 1)).exists():
        time.sleep(0.1)
    while life.trigger == "stop" and '["write"' not in Path(told["file"]).read_text():
        time.sleep(0.1)
    time.sleep(1)
    query.stop()


def record(lives: list[Life]) -> list[list[object]]:
    """The diary of a scenario."""
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as folder:
        made = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in made.create_topics([NewTopic("in", 2), NewTopic("out", 2)]).values():
            future.result()
        file, checkpoint = Path(folder) / "diary", Path(folder) / "checkpoint"
        file.touch()
        count = 0
        for life in lives:
            _produce(broker.bootstrap, count, life.rows)
            count += life.rows
            with file.open("a") as diary:
                diary.write('["life"]\n')
            told = {
                "life": asdict(life), "file": str(file), "checkpoint": str(checkpoint),
                "servers": broker.bootstrap,
            }  # fmt: skip
            _live(json.dumps(told), Path(f"{file}.kill"))
        return [json.loads(line) for line in file.read_text().splitlines()]


def _produce(servers: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(first, first + count):
        producer.produce("in", str(number).encode(), partition=number % 2)
    producer.flush()


def _live(given: str, kill: Path) -> None:
    kill.unlink(missing_ok=True)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(HERE.parent.parent)}
    command = [sys.executable, "-m", "tests.histories.record_spark", "--app", given]
    running = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    while running.poll() is None:
        if kill.exists():
            kill_session(running.pid)
        time.sleep(0.05)
    kill_session(running.pid)


def main() -> None:
    """The command line."""
    if sys.argv[1:2] == ["--app"]:
        app(sys.argv[2])
        return
    RECORDED.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCENARIOS:
        lines = record(SCENARIOS[name])
        text = "[\n" + ",\n".join(json.dumps(line) for line in lines) + "\n]\n"
        (RECORDED / f"{name.replace(' ', '_')}.json").write_text(text)
        print(name, len(lines), flush=True)


if __name__ == "__main__":
    main()
