"""The rehearsal is judged: it names each broken broker, and none that is whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from eoslog.rehearse import command, crash, time_out
from eoslog.testing import EmbeddedBroker
from tests.rehearse.broken_brokers import BROKEN, BROKEN_IN_CRASHES, SAYS, SWEEPS, Break
from tests.rehearse.rehearsing import document, not_holding

pytestmark = pytest.mark.long  # a rehearsal takes seconds, and there is one for each broken broker


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    log = logging.getLogger("eoslog")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("broken", "row"), BROKEN, ids=[entry[0].__name__ for entry in BROKEN])
def test_a_broken_broker_is_named(broken: Break, row: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        patch.setattr(command, "PATIENCE_S", 1.0)  # what has to come does not come
        patch.setattr(time_out, "SWEEP_S", 2.0)
        with EmbeddedBroker(in_thread=True, config=SWEEPS) as broker:
            found = document(broker.bootstrap, "--timeout", "5")
    print(f"{broken.__name__}: {not_holding(found)}")
    verdicts = {one["row"]: one["verdict"] for one in found["rows"]}
    assert verdicts[row] == "fails" and found["status"] == 1, found
    assert SAYS.get(broken, "") in not_holding(found)[row]


def test_a_whole_broker_holds() -> None:
    with EmbeddedBroker(in_thread=True, config=SWEEPS) as broker:
        found = document(broker.bootstrap)
    assert found["status"] == 0 and not not_holding(found), found


def crashed(broken: Break | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A rehearsal in which the broker loses its power."""
    with EmbeddedBroker(in_thread=True, config=SWEEPS) as broker:

        def cut(_: str) -> None:
            broker.lose_unsynced()
            broker.start()

        monkeypatch.setattr(crash, "run_command", cut)
        if broken is not None:
            broken(monkeypatch)
        return document(broker.bootstrap, "--crash", "power")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("broken", BROKEN_IN_CRASHES)
def test_a_broker_that_comes_back_broken_is_named(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    found = crashed(broken, monkeypatch)
    print(not_holding(found))
    assert "a crash of brokers" in not_holding(found) and found["status"] == 1


def test_a_broker_that_comes_back_whole_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = crashed(None, monkeypatch)
    assert found["status"] == 0 and not not_holding(found) and not found["left"], found
