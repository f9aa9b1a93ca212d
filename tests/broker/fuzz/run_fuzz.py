"""`make fuzz`: a million hurt requests, in rounds with a fresh broker each, every round with other rules.

Prints how many inputs, answers, closes and faults there were, the slowest input, and the memory after each
round. Ends with an error if a handler failed on any of them, a good client was not served, one input held up
the others for long, or memory grew from round to round.
"""

import argparse
import asyncio
import gc
import logging
import resource
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from eoslog.broker.config.options import AUTHORIZER
from eoslog.broker.security.listeners import Listener
from tests.broker.fuzz.fuzzed_broker import TOO_LONG, FuzzedBroker, Result, inputs

SASL = Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT")
USERS = (
    "listener.name.sasl_plaintext.plain.sasl.jaas.config",
    'PlainLoginModule required user_fuzz="fuzz";',
)
ROUNDS: dict[str, dict[str, str]] = {
    "open": {},
    "all allowed": {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"},
    "open to those without rules": {
        "authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true",
    },
    "before authentication": {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        USERS[0]: USERS[1], "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    },
}  # fmt: skip
LISTENERS = {"before authentication": SASL}
"""Which one the inputs come by, if not by a plain one."""
GROWTH = 48 << 20
"""Bytes that the process may grow from the first turn through the rounds to the last."""


async def one_round(name: str, seed: int, count: int) -> Result:
    """Feed so many inputs to a fresh broker."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        fuzzed = FuzzedBroker(Path(directory), LISTENERS.get(name), ROUNDS[name])
        try:
            return await fuzzed.run(islice(inputs(seed), count))
        finally:
            await fuzzed.close()


def memory() -> int:
    """The resident bytes of this process."""
    gc.collect()
    rss: int = psutil.Process().memory_info().rss
    return rss


def fuzz(total: int, per_round: int, seed: int, *, say: Any = print) -> tuple[Result, list[int]]:
    """All rounds; answers what came of them and the memory after each turn through all kinds of rounds."""
    logging.getLogger("eoslog").setLevel(logging.ERROR)
    logging.getLogger("eoslog").propagate = False
    everything, turns, number = Result(), [], 0
    while everything.inputs < total:
        for name in ROUNDS:
            begun = time.monotonic()
            result = asyncio.run(one_round(name, seed + number, per_round))
            number += 1
            everything.add(result)
            took = time.monotonic() - begun
            say(
                f"round {number:3} ({name}): {result.inputs} inputs in {took:.0f} s,"
                f" {result.answered} answered, {result.closed} closed, {result.left} left waiting,"
                f" good client served {result.lively} times, slowest {result.slowest * 1000:.0f} ms,"
                f" {sum(result.faults.values())} faults,"
                f" {memory() >> 20} MB"
            )
            for fault, times in result.faults.items():
                say(f"    {times} x {fault}")
        turns.append(memory())
    return everything, turns


def main() -> None:
    """Read the options, run, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--round", type=int, default=25_000, help="inputs for one broker")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}; before: {memory() >> 20} MB", flush=True)
    result, turns = fuzz(options.inputs, options.round, options.seed)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{result.inputs} inputs: {result.answered} answered, {result.closed} connections closed,"
        f" {result.left} left waiting, good client served {result.lively} times of {result.lively},"
        f" {sum(result.faults.values())} faults, slowest {result.slowest * 1000:.0f} ms;"
        f" memory after each turn {[turn >> 20 for turn in turns]} MB, at most {most} MB"
    )
    if result.slowest > TOO_LONG:
        print(f"an input held up the others for {result.slowest:.1f} s: {result.slowest_input.hex()}")
    grown = turns[-1] - turns[0]
    if grown > GROWTH:
        print(f"memory grew by {grown >> 20} MB")
    sys.exit(bool(result.faults) or result.slowest > TOO_LONG or grown > GROWTH)


if __name__ == "__main__":
    main()
