"""What `eoslog checkpoint` says of wrong arguments and of places that are no checkpoint: a sentence, an exit
status, and nothing is changed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eoslog.cli import main
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.plain_checkpoint import lines, plan

COMMANDS: dict[str, list[str]] = {
    "show": [],
    "check": [],
    "rewind": ["--by", "1"],
    "skip-to": ["--by", "1"],
    "add-topic": ["more"],
    "fork": ["new"],
    "undo": [],
    "diff": ["edit-0001"],
}


def asked(broker: EmbeddedBroker, *arguments: object) -> Result:
    """The command's answer, which is never a traceback."""
    given = [*map(str, arguments), "--bootstrap-server", broker.bootstrap]
    said = CliRunner().invoke(main, ["checkpoint", *given])
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    return said


def content(checkpoint: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}


@pytest.fixture
def place(decided: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a checkpoint, to be hurt."""
    return Path(shutil.copytree(decided, tmp_path_factory.mktemp("hurt") / "checkpoint"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("metadata", None, r"no query has a checkpoint here \(no metadata\)"),
        ("metadata", "{", "metadata is '{': .*; if the file is damaged, restore it from a copy"),
        ("eoslog/sink", "{", "eoslog/sink is '{': .*; if the file is damaged, restore it from a copy"),
        ("offsets/1", 'v1\n{"batchWatermarkMs":0}\n{"x":', r"offsets/1: it is damaged: .*restore it"),
        ("offsets/1", "v9\n{}\n", "offsets/1: its version is 'v9', and eoslog knows v1, v2"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_checkpoint_that_is_hurt(
    broker: EmbeddedBroker, place: Path, command: str, name: str, text: str | None, says: str
) -> None:
    (place / name).unlink()
    if text is not None:
        (place / name).write_text(text)
    before = content(place)
    said = asked(broker, command, place, *COMMANDS[command])
    assert said.exit_code == 1
    assert re.search(says, said.output), said.output
    assert content(place) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_that_is_none(broker: EmbeddedBroker, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name, says in (
        ("empty", "no query has a checkpoint"),
        ("nothing", "no query"),
        ("file", "Not a directory"),
    ):
        said = asked(broker, command, tmp_path / name, *COMMANDS[command])
        assert said.exit_code == 1 and says in said.output, said.output
    assert not (tmp_path / "nothing").exists() and not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ("rewind CK", 2, "give one of --to, --by and --to-batch"),
        ("rewind CK --by 0", 2, "0 is not in the range"),
        ("rewind CK --by x", 2, "'x' is not a valid integer"),
        ("rewind CK --to latest", 1, "the query stands there already"),
        ("rewind CK --to yesterday", 1, "option --to cannot be 'yesterday'"),
        ("rewind CK --to {", 1, "--to: '{' cannot be read"),
        ('rewind CK --to {"x":{"0":1}}', 1, "the query does not read x-0"),
        ('rewind CK --to {"TOPIC":{"0":-5}}', 1, "-5 is no offset for partition 0"),
        ('rewind CK --to {"TOPIC":{"0":25}}', 1, "use eoslog checkpoint skip-to"),
        ("rewind CK --to-batch 7", 1, "--to-batch 7: the checkpoint has the ends of batches 0 to 1"),
        ("rewind CK --to-batch -1", 2, "-1 is not in the range"),
        ("rewind CK --by 1 --to-batch 0", 2, "give one of --to, --by and --to-batch"),
        ("rewind CK --by 3 --accept-duplicates -1", 2, "-1 is not in the range"),
        ("rewind CK --by 3 --accept-duplicates 2", 1, "give --accept-duplicates 3"),
        ("rewind CK --by 3 --watch x", 2, "'x' is not a valid float"),
        ("skip-to CK", 2, "give one of --to and --by"),
        (
            'skip-to CK --to {"TOPIC":{"0":31}}',
            1,
            "offset 31 of TOPIC-0 is not in the log, which has 0 to 30",
        ),
        ("skip-to CK --by 5 --accept-loss 4", 1, "give --accept-loss 5"),
        ("add-topic CK", 2, "Missing argument 'TOPIC'"),
        ("add-topic CK nothing", 1, "topic 'nothing' does not exist"),
        ("add-topic CK TOPIC", 1, "the query reads TOPIC already"),
        ("add-topic CK nothing --start x", 1, "option --to cannot be 'x'"),
        ("fork CK", 2, "Missing argument 'NEW'"),
        ("fork CK /new", 1, "give the new one a group of its own (--group)"),
        ("fork CK /new --group g --transactional-id=", 1, "--transactional-id: the name is empty"),
        ("fork CK /new --group=", 1, "--group: the name is empty"),
        ("fork CK CK --group g", 1, "lie in one another"),
        ("fork CK CK/new --group g", 1, "lie in one another"),
        ("fork CK /proc/x --group g --accept-duplicates 10 --watch 0", 1, "/proc/x cannot be written"),
        ("move-cluster CK", 2, "Missing option '--to-bootstrap-server'"),
        ("move-cluster CK --to-bootstrap-server x", 2, "'x' is not host:port"),
        ("move-cluster CK --to-bootstrap-server BROKER", 1, "where the query is: no move"),
        ("move-cluster CK --to-bootstrap-server BROKER --offsets {", 1, "--offsets: '{' cannot be read"),
        ("undo CK", 1, "there is no edit to take back"),
        ("diff CK", 2, "Missing argument 'B'"),
        ("diff CK edit-0009", 1, "there is no backup edit-0009; it has none"),
        ("nonsense CK", 2, "No such command 'nonsense'"),
        ("show", 2, "Missing argument 'CHECKPOINT'"),
        ("show CK more", 2, "unexpected extra argument"),
        ("show CK --timeout -1", 2, "is not in the range"),
        ("show CK --command-config /nope", 1, "config file /nope cannot be read"),
    ],
)
def test_arguments(
    broker: EmbeddedBroker, decided: Path, topic: str, arguments: str, status: int, says: str
) -> None:
    names = {r"\bCK\b": str(decided), r"(?<!')\bTOPIC\b(?!')": topic, r"\bBROKER\b": broker.bootstrap}
    for short, long in names.items():
        arguments, says = re.sub(short, long, arguments), re.sub(short, long, says)
    before = content(decided)
    said = asked(broker, *arguments.split(" "))
    assert (said.exit_code, says in said.output) == (status, True), said.output
    assert content(decided) == before


def test_offsets_of_sources_that_read_no_topics(broker: EmbeddedBroker, decided: Path) -> None:
    """Spark's rate and file sources: shown, and not edited."""
    for batch, text in ((2, "5"), (3, '{"logOffset":3}')):
        plan(decided, batch, f'v1\n{{"batchWatermarkMs":0}}\n{text}\n')
        assert asked(broker, "show", decided).exit_code == 0
        assert asked(broker, "rewind", decided, "--by", 1, "--accept-duplicates", 9).exit_code == 1


def test_a_topic_that_is_gone(broker: EmbeddedBroker, plain: Path) -> None:
    plan(plain, 2, lines({"no-such-topic": {"0": 3}}))
    assert asked(broker, "show", plain).exit_code == 0
    said = asked(broker, "rewind", plain, "--by", 1)
    assert said.exit_code == 1 and "topic 'no-such-topic' does not exist" in said.output
