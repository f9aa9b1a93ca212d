"""Every option of Kafka's clients and of Spark's connector has one answer; a page counts them."""

import subprocess
from pathlib import Path

import pytest

from eoslog.connector.options.ignored_and_refused import FIXED, FORBIDDEN, NO_EFFECT
from eoslog.connector.options.table import ALIASES, SPARKS_OPTIONS, TABLE
from tests.scenarios.apache_kafka import JARS, check

HERE = Path(__file__).parent  # the docs count them from the same file
INTERNAL = {"kafka.internal.throw.on.fetch.stable.offset.unsupported"}
"""Refused as an unknown name: Kafka has it for itself."""
KAFKAS = [f"kafka.{name}" for name in (HERE / "kafka_client_options.txt").read_text().split()]
TAKEN = {*(one.name for one in TABLE), *ALIASES, *FIXED}


def test_every_option_has_one_answer() -> None:
    for name in (*KAFKAS, *SPARKS_OPTIONS):
        found = [name in table for table in (TAKEN, NO_EFFECT, FORBIDDEN)]
        assert sum(found) == (0 if name in INTERNAL else 1), name


@pytest.mark.kafka
def test_the_list_is_that_of_kafkas_jars() -> None:
    check()
    command = ["java", "-cp", f"{JARS}/*", str(HERE / "ClientOptions.java")]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
    assert [f"kafka.{name}" for name in said.split()] == KAFKAS
