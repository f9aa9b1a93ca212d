"""`make stories`: what people come for, typed as the docs have it, each with the seconds it takes.

    python -m tests.stories.run_stories [NAME...] [--list]

A story is a page, or a part of one, typed from top to bottom by the checks that hold the docs to what they
say; kills and judges are among them. One that fails leaves its output in build/stories/NAME.log.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "stories"
_PAGES = "tests/docs/test_blocks.py"
_PYTEST = ("-m", "pytest", "-q", "--timeout", "900")


class Story(NamedTuple):
    """What somebody wants, the page that tells how, and the words that type it: after `python`."""

    name: str
    wants: str
    page: str
    words: tuple[str, ...]


def tested(path: str, *which: str) -> tuple[str, ...]:
    """The words that run tests of a file; `which`: -k's."""
    chosen = ("-k", " or ".join(which)) if which else ()
    return (*_PYTEST, path, *chosen)


def page(*which: str) -> tuple[str, ...]:
    """The words that type pages whose blocks start queries."""
    return (*tested(_PAGES, *which), "-m", "long")


def example(*which: str) -> tuple[str, ...]:
    """The words that run examples that start Spark."""
    return (*tested("tests/examples/test_spark_examples.py", *which), "-m", "kafka")


STORIES = (
    Story("project", "a project of one's own, from an empty folder to rows", "installing.md",
          ("-u", "-m", "tests.docs.newcomer", "--own")),
    Story("first", "a copy that is killed and started again", "quickstart.md", page("quickstart")),
    Story("notebook", "a notebook, its broker killed in mid-stream", "examples.md",
          (*tested("tests/examples/test_spark_examples.py"), "-m", "long")),
    Story("migration", "from Spark's connector to eoslog and on, with the same checkpoint", "migrating.md",
          example("migrate")),
    Story("windows", "windows with state, killed and resumed", "examples.md", example("windows")),
    Story("routing", "two sources joined, rows to the topics that they name", "examples.md",
          example("join_and_route")),
    Story("foreachbatch", "foreachBatch with a token for each batch, to two topics", "migrating.md",
          tested("tests/connector/sink/test_write_tokens_spark.py")),
    Story("avro", "Avro with a registry; bad messages and homeless rows as dead letters", "examples.md",
          example("avro", "dead_letters")),
    Story("security", "TLS and passwords, and exactly the rights that a query needs", "security.md",
          (*_PYTEST, "tests/client/test_security_spark.py",
           "tests/docs/test_rights.py", "tests/broker/security/test_listeners.py")),
    Story("monitoring", "figures of each micro-batch, lag, eoslog top, the console", "operating.md",
          (*_PYTEST, "tests/connector/test_progress.py", "tests/top",
           "tests/console", "tests/broker/operations/test_operating.py")),
    Story("disasters", "a lost checkpoint, a lost transaction, Ctrl-C in mid-batch", "recovering.md",
          (*_PYTEST, _PAGES, "tests/connector/run/test_orderly_end.py",
           "-k", "lost_checkpoint or power_cut or ctrl_c", "-m", "long or spark")),
    Story("cluster", "executors in JVMs of their own, killed", "installing.md",
          tested("tests/connector/spark/test_spark_python.py", "test_a_copy")),
    Story("connect", "a client of Spark Connect, its server killed", "connect.md",
          tested("tests/connector/spark/test_spark_connect.py")),
    Story("pytest", "one's own pipeline under test, with faults", "testing-pipelines.md",
          page("testing")),
)  # fmt: skip


def run(story: Story) -> tuple[bool, float]:
    """Type it. Whether it went as told, and the seconds."""
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with (LOGS / f"{story.name}.log").open("w") as log:
        words = [sys.executable, *story.words]
        done = subprocess.run(words, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)
    return done.returncode == 0, time.monotonic() - began


def main() -> int:
    """The exit status says whether all went as told."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--list", action="store_true", help="names and pages, and no more")
    given = parser.parse_args()
    unknown = set(given.names) - {story.name for story in STORIES}
    if unknown:
        parser.error(f"no story {', '.join(sorted(unknown))}: --list names them")
    failed = []
    for story in STORIES:
        if given.names and story.name not in given.names:
            continue
        told = f"{story.name:13} {story.wants} (docs/{story.page})"
        if given.list:
            print(told)
            continue
        went, seconds = run(story)
        failed += [] if went else [story.name]
        print(f"{seconds:5.0f} s  {'as told' if went else 'FAILED '}  {told}", flush=True)
    for name in failed:
        print(f"{name}: see {(LOGS / name).relative_to(ROOT)}.log", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
