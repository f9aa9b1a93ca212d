"""`eoslog rehearse` says what the transactions of franz-go's kfake lack; and what docs/rehearse.md shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eoslog.rehearse import crash
from tests.connector.brokers import DECISIONS
from tests.connector.stock_kafka import Kafka
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.reader import all_match, steps
from tests.kfake.kfake import Kfake
from tests.rehearse.rehearsing import document, names_of, not_holding, rehearse, verdicts

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(300)]
PAGE = ROOT / "docs" / "rehearse.md"
LACKS = {
    "what a dead producer left": "GROUP_ID_NOT_FOUND",
    "offsets in transactions": "GROUP_ID_NOT_FOUND",
    "ends of transactions": "tells Empty",
    "coordinators": "tells Empty",
    "a driver killed at every command": "GROUP_ID_NOT_FOUND",
    "time-outs": "GROUP_ID_NOT_FOUND",
}
"""Row -> what it says. test_kfake.py shows what becomes of queries there."""


@pytest.fixture
def kfake() -> Iterator[Kfake]:
    with Kfake({}) as node:
        Kafka(node.bootstrap).topic(3, DECISIONS)
        yield node


def test_what_its_transactions_lack_is_named(kfake: Kfake) -> None:
    found = document(kfake.bootstrap, "--decision-topic", DECISIONS)
    said = not_holding(found)
    fails = {row for row, verdict in verdicts(found).items() if verdict == "fails"}
    assert fails == set(LACKS) and all(LACKS[row] in said[row] for row in fails), said
    assert found["status"] == 1 and not found["left"]
    assert not [name for name in names_of(kfake.bootstrap) if name.startswith("eoslog-")]


def test_that_it_has_no_internal_topic_is_named(kfake: Kfake) -> None:
    found = document(kfake.bootstrap, "--timeout", "3")
    assert found["status"] == 1 and "__consumer_offsets" in str(not_holding(found)), found


def test_that_it_forgets_in_a_crash_is_named(kfake: Kfake, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(_: str) -> None:
        kfake.kill()
        kfake.restart()

    monkeypatch.setattr(crash, "run_command", kill)
    found = document(kfake.bootstrap, "--decision-topic", DECISIONS, "--crash", "kill", "--timeout", "5")
    assert verdicts(found)["a crash of brokers"] == "fails", found
    print(not_holding(found)["a crash of brokers"])


def test_the_page_shows_what_it_prints(kfake: Kfake) -> None:
    (block,) = [
        one for one in blocks_of(PAGE) if one.mark == "run by" and one.says.endswith("test_rehearse_kfake.py")
    ]
    ((command, wanted),) = steps(block.code)
    assert command == f"eoslog rehearse --decision-topic {DECISIONS}"
    printed = rehearse(kfake.bootstrap, "--decision-topic", DECISIONS).output
    assert all_match(printed.splitlines(), wanted), printed
