"""`eoslog rehearse` on Apache Kafka 4.3.1, by both transaction protocols; and what docs/rehearse.md shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.blocks import ROOT, blocks_of
from tests.docs.reader import all_match, steps
from tests.rehearse.rehearsing import document, names_of, not_holding, rehearse, verdicts
from tests.scenarios.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
PAGE = ROOT / "docs" / "rehearse.md"


@pytest.fixture(scope="module", params=["1", "2"])
def kafka(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A node, and the transaction.version that it was formatted with."""
    with ApacheKafka({}, (f"--feature=transaction.version={request.param}",)) as node:
        yield node.bootstrap, request.param


def test_apache_kafka_holds(kafka: tuple[str, str]) -> None:
    bootstrap, version = kafka
    found = document(bootstrap)
    assert found["status"] == 0 and not not_holding(found), found
    assert f"transaction.version {version}" in found["rows"][0]["what"]
    assert verdicts(found)["two-phase commit"] == "note"
    assert found["killed"][-1] == "after its last command" and len(found["killed"]) > 25
    assert not found["left"] and not [name for name in names_of(bootstrap) if name.startswith("eoslog-")]


def test_the_page_shows_what_it_prints(kafka: tuple[str, str]) -> None:
    bootstrap, version = kafka
    if version != "2":
        pytest.skip("the page shows Kafka 4's default, transaction.version 2")
    (block,) = [
        one for one in blocks_of(PAGE) if one.mark == "run by" and one.says.endswith("test_on_kafka.py")
    ]
    ((command, wanted),) = steps(block.code)
    assert command == "eoslog rehearse"
    printed = rehearse(bootstrap).output
    assert all_match(printed.splitlines(), wanted), printed
