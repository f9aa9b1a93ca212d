"""Ctrl-C ends a streaming program in order and without a flood, as docs/troubleshooting.md has it."""

import os
import re
import signal
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from eoslog.testing import EmbeddedBroker
from tests.connector.stock_kafka import Kafka
from tests.kit.program import Program
from tests.kit.waiting import until

PAGE = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
PATIENCE_SECONDS = 120
MOST_LINES = 8
FREED_SECONDS = 10
"""Tasks may die for some seconds after the stop; what they hold open is ended then."""
_PROGRAM = """
import sys
from pyspark.sql import SparkSession

bootstrap, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
to = {"kafka.bootstrap.servers": bootstrap}
read = spark.readStream.format("eoslog").options(**to, subscribe=source, startingOffsets="earliest").load()
writer = read.select("key", "value").writeStream.format("eoslog").options(**to, topic=target)
query = writer.option("checkpointLocation", checkpoint).start()
"""

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * PATIENCE_SECONDS)]


def what_the_page_says() -> str:
    section = PAGE.read_text().partition("\n## Ctrl-C\n")[2]
    (code,) = re.findall(r"```python\n(.*?)```", section.partition("\n# ")[0], re.DOTALL)
    return str(code)


def test_ctrl_c_in_the_midst_of_it(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        kafka = Kafka(broker.bootstrap)
        source, target, over = kafka.topic(1, "in"), kafka.topic(1, "out"), threading.Event()

        def feed() -> None:
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            while not over.wait(0.02):
                producer.produce(source, b"row")
                producer.poll(0)
            producer.flush(10)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            said = run_and_interrupt(kafka, source, target, tmp_path)
        finally:
            over.set()
            feeder.join()
        assert len(said) <= MOST_LINES, "\n".join(said)
        kafka.put(target, [b"behind"])
        until(
            lambda: kafka.rows(target, 1)[-1][3] == b"behind",
            "no open transaction holds readers back",
            FREED_SECONDS,
        )


def run_and_interrupt(kafka: Kafka, source: str, target: str, folder: Path) -> list[str]:
    """Ctrl-C as a terminal sends it: to the whole group. Returns the lines after it."""
    words = [sys.executable, "-c", _PROGRAM + what_the_page_says(), kafka.bootstrap, source, target]
    with Program([*words, folder / "checkpoint"], folder / "log", patience=PATIENCE_SECONDS) as program:
        program.wait_until("rows arrive", lambda: len(kafka.rows(target, 1)) >= 50)
        before = len(program.log.read_text().splitlines())
        os.killpg(program.process.pid, signal.SIGINT)
        assert program.end() == 0, program.tail()
        return program.log.read_text().splitlines()[before:]
