"""A short turn of the fuzz that `make fuzz` does at length."""

import asyncio
import logging
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.broker.fuzz.fuzz_inputs import inputs
from tests.broker.fuzz.fuzzed_broker import TOO_LONG, FuzzedBroker
from tests.broker.fuzz.run_fuzz import ROUNDS, one_round

INPUTS = 6_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Only errors are of interest, and those the fuzz collects by itself."""
    logger = logging.getLogger("eoslog")
    before = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    yield
    logger.setLevel(before[0])
    logger.propagate = before[1]


@pytest.mark.parametrize("name", ROUNDS)
def test_hurt_requests_do_no_harm(name: str) -> None:
    result = asyncio.run(one_round(name, 20_261_121, INPUTS))
    assert result.inputs == INPUTS
    assert not result.faults, result.faults
    assert result.slowest < TOO_LONG, result.slowest_input.hex()
    assert result.lively >= INPUTS // 500
    assert result.answered > 50  # before authentication three APIs are: of these inputs some 100


def test_the_judge_sees_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that fails on a name that it does not like."""
    from eoslog.broker.network import dispatch
    from eoslog.protocol.apis import ApiKey

    def fails(context: object, request: dict[str, object]) -> None:
        raise ZeroDivisionError("of the test")

    table = dict(dispatch.handlers()) | {ApiKey.CREATE_PARTITIONS: fails}
    monkeypatch.setattr("eoslog.broker.network.connection.handlers", lambda: table)

    async def run() -> dict[str, int]:
        with tempfile.TemporaryDirectory() as directory:
            fuzzed = FuzzedBroker(Path(directory))
            try:
                return (await fuzzed.run(islice(inputs(3), 2000))).faults
            finally:
                await fuzzed.close()

    assert any("ZeroDivisionError: of the test" in fault for fault in asyncio.run(run()))
