"""Kerberos tickets that end while a query runs, on brokers that end every session: `make test-kerberos`."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connector.brokers import Kafka
from tests.connector.executors.cluster import Copy, SparkCluster
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.spark_probe import UNDECIDED
from tests.kit.kerberos import ALICE, KRB5, MARKS, SERVERS, Kdc, Server, apache, bundled, login_of

pytestmark = [*MARKS, pytest.mark.spark, pytest.mark.timeout(3 * PATIENCE_SECONDS)]

LIFE = 40
"""Of alice's tickets, in seconds: long enough for a start of Spark."""
ENDING = {"connections.max.reauth.ms": "5000"}
"""A broker's option: who has not logged in anew after so long is cut off (KIP-368)."""


@pytest.fixture(scope="module")
def short(kdc: Kdc) -> Kdc:
    """The realm, with alice's tickets short."""
    tickets_last(kdc, LIFE)
    return kdc


def tickets_last(kdc: Kdc, seconds: int) -> None:
    """Those that alice gets from now on."""
    kdc.run("kadmin.local", "modprinc", "-maxlife", f"{seconds}sec", ALICE)


@pytest.fixture(scope="module")
def ours(short: Kdc) -> Iterator[Server]:
    with bundled(short, config=ENDING) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(short: Kdc) -> Iterator[Server]:
    with apache(short, config=ENDING) as server:
        yield server


def keytab_of(kdc: Kdc) -> str:
    return str(kdc.folder / "alice.keytab")


def stream_of(copy: Copy, server: Server, jaas: str) -> dict[str, Any]:
    """A copy in three batches."""
    command, given = copy.stream(batches=3), server.options(jaas)
    return command | {end: command[end] | given for end in ("read", "write")} | {"bootstrap": server.sasl}


def pass_the_end_of_tickets(cluster: SparkCluster, command: dict[str, Any]) -> None:
    """Start the query, and hold its second batch before the decision until its first tickets have ended."""
    cluster.order({"at": UNDECIDED, "batch": 1, "do": "wait"})
    cluster.tell(command)
    cluster.wait_for(1, UNDECIDED, batch=1)
    time.sleep(LIFE + 5)
    cluster.go(UNDECIDED)


@pytest.mark.parametrize("server", SERVERS)
def test_a_keytab_s_tickets_end_and_the_query_goes_on(
    short: Kdc, server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    broker: Server = request.getfixturevalue(server)
    copy = Copy(Kafka(broker.plain), tmp_path)
    with SparkCluster(tmp_path / "spark", "local[2]") as cluster:
        pass_the_end_of_tickets(cluster, stream_of(copy, broker, login_of(keytab_of(short), ALICE)))
        assert cluster.answer()["error"] is None, cluster.tail()
    copy.check()


@pytest.mark.parametrize("server", SERVERS)
def test_a_cache_s_ticket_ends_and_the_query_stops(
    short: Kdc, server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It says what to do, has written only whole batches, and the next start goes on."""
    broker: Server = request.getfixturevalue(server)
    copy, cache = Copy(Kafka(broker.plain), tmp_path), tmp_path / "cache"
    command = stream_of(copy, broker, f'{KRB5} useTicketCache=true ticketCache="{cache}";')
    kinit = ("kinit", "-c", str(cache), "-k", "-t", keytab_of(short), ALICE)
    short.run(*kinit)
    with SparkCluster(tmp_path / "first", "local[2]") as cluster:
        pass_the_end_of_tickets(cluster, command)
        error = str(cluster.answer()["error"])
        assert "expired; the ticket has expired: renew it (kinit), or give a keytab" in error, error
        assert "what the failed write left open could not be ended" in (cluster.folder / "log").read_text()
    assert len(copy.visible()) in (len(copy.rows) // 3, len(copy.rows) * 2 // 3), "whole batches"
    tickets_last(short, 3600)  # the second start has no hurry, on no machine
    short.run(*kinit)
    tickets_last(short, LIFE)
    with SparkCluster(tmp_path / "second", "local[2]") as cluster:
        cluster.tell(command)
        assert cluster.answer()["error"] is None, cluster.tail()
    copy.check()


@pytest.mark.parametrize("server", SERVERS)
def test_a_cache_that_is_renewed_in_time(
    short: Kdc, server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As a cron job with kinit does it: the query takes the new ticket by itself."""
    broker: Server = request.getfixturevalue(server)
    copy, cache = Copy(Kafka(broker.plain), tmp_path), tmp_path / "cache"
    kinit = ("kinit", "-c", str(cache), "-k", "-t", keytab_of(short), ALICE)
    short.run(*kinit)
    with SparkCluster(tmp_path / "spark", "local[2]") as cluster:
        cluster.order({"at": UNDECIDED, "batch": 1, "do": "wait"})
        cluster.tell(stream_of(copy, broker, f'{KRB5} useTicketCache=true ticketCache="{cache}";'))
        cluster.wait_for(1, UNDECIDED, batch=1)
        time.sleep(LIFE / 2)
        short.run(*kinit)
        time.sleep(LIFE / 2 + 5)
        cluster.go(UNDECIDED)
        assert cluster.answer()["error"] is None, cluster.tail()
    copy.check()
