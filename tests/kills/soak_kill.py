"""`make soak-kill`: everything is killed, again and again, and every round is judged by a stock client.

    python -m tests.kills.soak_kill [--kills 1000] [--seed N] [--broker bundled|nodes] [--without ACT,ACT]

A failure keeps its data, names its seed and stops the run.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.kills.kill_brokers import Brokers, Bundled, Nodes
from tests.kills.kill_posts import Found, Tally
from tests.kills.kill_round import ACTS, KINDS, Setting, run
from tests.kills.kill_spark import MASTER, Spark
from tests.spark_session import set_environment

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Rounds until there were so many kills; fails with the first round that is not right."""
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background Python would not hear the first one
        signal.signal(number, signal.default_int_handler)
    set_environment()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="in all")
    parser.add_argument("--round", type=int, default=60, help="kills in a round")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--broker", choices=("bundled", "nodes"), default="bundled")
    parser.add_argument("--without", default="", help=f"acts to leave out, of {', '.join(ACTS)}")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of the queries of a round")
    parser.add_argument("--master", default=MASTER, help="of Spark, if a kind is one of Spark's")
    parser.add_argument("--pace", type=float, default=0.5, help="seconds between two strikes, on average")
    parser.add_argument("--rate", type=float, default=300, help="rows a second that come to the source")
    parser.add_argument("--data", type=Path, help="where all is kept; default: a temporary directory")
    options = parser.parse_args()
    acts = tuple(act for act in ACTS if act not in options.without.split(","))
    place = options.data or Path(tempfile.mkdtemp(prefix="soak-kill-"))
    place.mkdir(exist_ok=True)
    print(f"seed {options.seed}, {options.broker}, acts {acts}, data in {place}", flush=True)
    jars = ROOT / ".peers" / "kafka-4.3.1"
    brokers: Brokers = Bundled(place / "broker") if options.broker == "bundled" else Nodes(jars)
    spark = Spark(place / "spark", options.master) if "spark" in options.kinds else None
    tally, seed, began = Tally(), options.seed, time.monotonic()
    try:
        while tally.killed < options.kills:
            folder = place / f"round-{seed}"
            folder.mkdir()
            setting = Setting(
                seed, options.round, folder, tuple(options.kinds.split(",")), acts, options.rate, options.pace
            )
            here = Tally()
            for line in run(setting, brokers, here, spark):
                print(f"  {line}", flush=True)
            tally.add(here)
            (place / "table").write_text("\n".join(tally.lines()))
            print(
                f"round {seed}: {here.kinds()}, all right; {tally.killed} kills of {options.kills} after "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
            shutil.rmtree(folder)
            seed += 1
    except Found as error:
        sys.exit(f"seed {seed}: {error}\nwhat is left of it: {place}")
    except BaseException:
        print(f"seed {seed}; what is left of it: {place}", flush=True)
        raise
    finally:
        print("\n".join(tally.lines()), flush=True)
        if spark is not None:
            spark.close()
        brokers.close()
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
