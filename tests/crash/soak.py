"""Crashes for minutes: `make soak-crash`. Prints its seed, and how many crash points it tried.

Long lives with random crashes, crash after crash, and now and then a crash at every change of a short run.
A violation ends it with the seed that shows it again.
"""

from __future__ import annotations

import argparse
import logging
import time

from tests.crash.crash_lives import ORDERED, Count, live, new_clients, random_lives, try_all
from tests.crash.crash_machine import Disk, Outcome

_SMALL_EVERY = 25  # random runs


def main() -> None:
    """Try until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="the first one")
    options = parser.parse_args()
    logging.getLogger("eoslog").setLevel(logging.CRITICAL)
    begun, told, seed, count = time.monotonic(), time.monotonic(), options.seed, Count()
    print(f"seeds from {seed} on, for {options.minutes:g} minutes", flush=True)
    while time.monotonic() - begun < 60 * options.minutes:
        try:
            _try(seed, options.seed, count)
        except BaseException:
            print(f"VIOLATION with --seed {seed}, after {count}", flush=True)
            raise
        seed += 1
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"{told - begun:5.0f} s: {count}, no violation", flush=True)
    print(f"seeds {options.seed} to {seed - 1}: {count}, 0 violations", flush=True)


def _try(seed: int, first: int, count: Count) -> None:
    random_lives(seed, 8, count, work=4)
    if (seed - first) % _SMALL_EVERY == 0:
        life = live(Disk(), new_clients(), seed, work=1, wanted=lambda number: True)
        try_all(life, seed, count, lambda _: (*ORDERED, Outcome.PAGES))


if __name__ == "__main__":
    main()
