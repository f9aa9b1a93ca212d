"""The examples of docs/examples.md that need no Spark: run as the page says, and killed at every step."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from eoslog.cli import main
from eoslog.testing import EmbeddedBroker, Fault
from tests.examples.running import (
    PAGE,
    PATIENCE_S,
    Script,
    command_of,
    commands,
    committed,
    create,
    put,
    sums,
)
from tests.kit.program import ROOT

SENTENCES = [f"the {color} fox jumps over the lazy dog {number}" for number in range(40)
             for color in ("red", "brown", "black")]  # fmt: skip
WORDS = Counter(word for sentence in SENTENCES for word in sentence.split())
DEATHS = ("Produce sent", "TxnOffsetCommit sent", "TxnOffsetCommit done", "EndTxn sent", "EndTxn done")
"""The requests of a transaction of the target at which a script is killed: sent but not carried out, or
carried out and not answered."""


def deadly(broker: EmbeddedBroker, death: str) -> Fault:
    """From this request on its connection is silent, so the script waits there until it is killed."""
    api, how = death.split()
    drop = broker.faults.drop_request if how == "sent" else broker.faults.drop_answer
    return drop(api, nth=2, cut=False)


@pytest.mark.timeout(PATIENCE_S)
def test_word_count(broker: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker.bootstrap, "sentences", 2)
    put(broker.bootstrap, "sentences", ((str(number), one) for number, one in enumerate(SENTENCES)))
    command = [*command_of("word_count.py", {}), "--bootstrap", broker.bootstrap, "--round", "10"]
    for death in DEATHS:
        fault = deadly(broker, death)
        Script(tmp_path, command).kill_when(fault)
    printed = Script(tmp_path, command).ended()
    assert re.fullmatch(r"\d+ sentences counted\n", printed) and not printed.startswith("0 ")
    assert sums(committed(broker.bootstrap, "word_counts")) == WORDS
    assert Script(tmp_path, command).ended() == "0 sentences counted\n"


def mirror(source: EmbeddedBroker, target: EmbeddedBroker) -> list[str]:
    changes = {"127.0.0.1:9092": source.bootstrap, "127.0.0.1:9093": target.bootstrap}
    return [*command_of("mirror.py", changes), "--round", "20"]


def audit(source: EmbeddedBroker, target: EmbeddedBroker) -> str:
    """What `eoslog audit` says of topic `orders` on both."""
    where = ["--from-bootstrap-server", source.bootstrap, "--to-bootstrap-server", target.bootstrap]
    done = CliRunner().invoke(main, ["audit", "--from", "orders", "--to", "orders", "--all-headers", *where])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.timeout(PATIENCE_S)
def test_mirror(broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path) -> None:
    create(broker.bootstrap, "orders", 2)
    orders = [(f"customer {number % 7}", f"order {number}") for number in range(300)]
    put(broker.bootstrap, "orders", orders, headers=[("unit", b"pieces")], timestamp=1_700_000_000_000)
    for death in DEATHS:
        fault = deadly(other, death)
        Script(tmp_path, mirror(broker, other)).kill_when(fault)
    Script(tmp_path, mirror(broker, other)).ended()
    assert "right: 300 records" in audit(broker, other)
    assert Script(tmp_path, mirror(broker, other)).ended() == "0 records mirrored\n"


@pytest.mark.timeout(PATIENCE_S)
def test_a_mirror_that_does_not_know_where_it_stood_stops(
    broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path
) -> None:
    create(broker.bootstrap, "known")
    put(other.bootstrap, "known", [(None, "one")])
    script = Script(tmp_path, [word.replace("orders", "known") for word in mirror(broker, other)])
    assert script.outcome()[1] == 1
    assert "known-0" in script.errors() and "has no offset for it" in script.errors()


def test_the_notebook_holds_no_outputs() -> None:
    cells = json.loads((ROOT / "examples" / "exactly_once.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code), "strip them"


def test_every_example_has_its_command_and_its_line() -> None:
    files = {one.name for one in (ROOT / "examples").iterdir() if one.suffix in (".py", ".ipynb")} - {
        "__init__.py"
    }
    scripts = {one for one in files if one.endswith(".py")}
    assert {Path(words[1]).name for words in commands()} == scripts
    for name in files:
        assert f"| `{name}` |" in (ROOT / "examples" / "README.md").read_text(), name
        assert f"examples/{name}" in PAGE.read_text(), name
