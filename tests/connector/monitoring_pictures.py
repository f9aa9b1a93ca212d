"""`make monitoring-pictures`: pictures of Prometheus that watches living queries, in docs/pictures.

One query copies, one is stuck, one waits behind a transaction that was forgotten. The rules are those of
packaging/monitoring, with half a minute for ten and a second for two.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from pyspark.sql import DataFrame, SparkSession
from selenium import webdriver

from eoslog import metrics, register
from eoslog.testing import EmbeddedBroker
from tests.broker.security.securitykit import free_ports
from tests.connector.brokers import Kafka
from tests.connector.test_progress import MONITORING, asked_at, prometheus_config
from tests.console.test_browser import chromium
from tests.docs.reader import ROOT
from tests.kit.kafka_nodes import ApacheKafka
from tests.kit.program import Program, until
from tests.spark_session import set_environment

PICTURES = ROOT / "docs" / "pictures"
*_PORTS, PROMETHEUS = free_ports(4)
PORTS = dict(zip(("eoslog-queries", "eoslog-cluster", "eoslog-broker"), _PORTS, strict=True))
SHOWN = ("Rows per second", "Its steps")
"""Panels of the dashboard."""
WANTED = {"EoslogQueryStuck", "EoslogReadersHeldBack", "EoslogHeldBackByTransaction"}


@contextmanager
def queries(kafka: Kafka, folder: Path) -> Iterator[None]:
    """The three of them, with metrics."""
    set_environment()
    spark = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    for topic in ("orders", "copies", "returns", "claims"):
        kafka.topic(name=topic)
        kafka.put(topic, [b"a"] * 3)
    forgotten = kafka.producer(transactional_id="importer", transaction_timeout_ms=900_000)
    forgotten.init_transactions(60)
    forgotten.begin_transaction()
    forgotten.produce("claims", b"open")
    forgotten.flush(60)
    over = threading.Event()

    def start(name: str, topic: str, write: Callable[[DataFrame, int], None] | None = None) -> None:
        to = {"kafka.bootstrap.servers": kafka.bootstrap}
        read = spark.readStream.format("eoslog").options(**to, subscribe=topic, startingOffsets="earliest")
        writer = read.load().select("value").writeStream.queryName(name).trigger(processingTime="1 second")
        writer = writer.option("checkpointLocation", str(folder / name))
        copy = writer.format("eoslog").options(**to, topic="copies", **{"transactional.id": name})
        (copy if write is None else writer.foreachBatch(write)).start()

    def stand(rows: DataFrame, batch: int) -> None:
        over.wait(800)

    def drop(rows: DataFrame, batch: int) -> None:
        pass

    def feed() -> None:
        while not over.wait(0.5):
            kafka.put("orders", [b"a"] * 200)

    served = metrics.serve(spark, f"127.0.0.1:{PORTS['eoslog-queries']}")
    start("orders", "orders")
    start("returns", "returns", stand)
    start("claims", "claims", drop)
    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        yield
    finally:
        over.set()
        feeding.join()
        for query in spark.streams.active:
            query.stop()
        served.close()
        forgotten.abort_transaction(60)
        spark.stop()


def firing() -> set[str]:
    try:
        return {one["labels"]["alertname"] for one in asked_at(PROMETHEUS, "alerts")["alerts"]}
    except OSError:
        return set()


def take(browser: webdriver.Chrome, path: str, script: str, element: str, name: str) -> None:
    """A picture of an element of a page, after a script."""
    browser.get(f"http://127.0.0.1:{PROMETHEUS}/classic/{path}")
    time.sleep(4)
    browser.execute_script(script)
    browser.set_window_size(1100, browser.execute_script("return document.body.scrollHeight") + 200)
    time.sleep(1)
    place = PICTURES / f"{name}.png"
    browser.find_element("css selector", element).screenshot(str(place))
    Image.open(place).quantize(128).save(place, optimize=True)


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", type=Path, help="Apache Kafka's jars, in place of the bundled broker")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eoslog-pictures-")))
        listen = {"metrics.listen": f"127.0.0.1:{PORTS['eoslog-broker']}"}
        if given.kafka:
            bootstrap = stack.enter_context(ApacheKafka(given.kafka, {})).bootstrap
        else:
            bootstrap = stack.enter_context(EmbeddedBroker(config=listen)).bootstrap
        stack.enter_context(queries(Kafka(bootstrap), folder))
        rules = (MONITORING / "alerts.yml").read_text().replace("> 600", "> 30")
        (folder / "alerts.yml").write_text(rules.replace("_back_seconds > 120", "_back_seconds > 1"))
        jobs = {job: port for job, port in PORTS.items() if not given.kafka or job != "eoslog-broker"}
        (folder / "prometheus.yml").write_text(
            prometheus_config(jobs, Path("alerts.yml")).replace('"1s"', '"5s"')
        )
        own = ["-m", "eoslog", "exporter", "--bootstrap-server", bootstrap]
        for command in (
            [sys.executable, *own, "--listen", f"127.0.0.1:{PORTS['eoslog-cluster']}"],
            [
                "prometheus",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address=127.0.0.1:{PROMETHEUS}",
            ],
        ):
            stack.callback(Program(command, folder / f"{len(command)}.log", folder=folder).kill)
        until(lambda: firing() >= WANTED, "the alerts", 400)
        time.sleep(30 if given.kafka else 150)
        browser = stack.enter_context(chromium("", folder / "profile")).driver
        where = "kafka" if given.kafka else "eoslog"
        browser.get(f"http://127.0.0.1:{PROMETHEUS}/classic/alerts")
        browser.execute_script("localStorage.hideInactiveAlerts = 'true'")  # as its button does
        show = "$('.alert-danger.alert_header').click()"
        take(browser, "alerts", show, "body", f"prometheus-alerts-{where}")
        if not given.kafka:
            panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
            asked: dict[str, object] = {}
            for number, title in enumerate(SHOWN):
                (panel,) = (one for one in panels if one["title"] == title)
                expression = panel["targets"][0]["expr"].replace("$query", "orders").replace("[5m]", "[1m]")
                asked |= {f"g{number}.expr": expression, f"g{number}.tab": 0, f"g{number}.range_input": "2m"}
            take(browser, f"graph?{urlencode(asked)}", "", "#graph_container", "prometheus-graphs")


if __name__ == "__main__":
    main()
