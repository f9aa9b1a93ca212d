"""Every word of start.accepted is walked: an error names it, its user sets it, and the query goes on.

The words are found in the sources, so a new one without a walk fails here. Most are walked in a history,
whose user sets the word before any other way out; the rest by a test that is named.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.histories import ways_out
from tests.histories.query import Query
from tests.histories.run_histories import play
from tests.histories.test_kept import KEPT
from tests.histories.world import World

ROOT = Path(__file__).parents[2]
BEGUN: list[tuple[Any, ...]] = [("query", "A", {"id": "x"}), ("produce", "in", 4), ("run", "A", 1)]
HANDED: list[tuple[Any, ...]] = [
    ("query", "A", {"id": "x", "kafka.group.id": "g"}),
    ("query", "B", {}),
    ("produce", "in", 4),
]

HISTORIES: dict[str, list[tuple[Any, ...]]] = {
    "batch-missing": KEPT["killed before its first decision, and the topic is made anew"],
    "batch-written": KEPT["killed before Spark noted it, and all is forgotten, the rows too"],
    "copied": KEPT["a copy of a checkpoint is tried out into another topic"],
    "decisions-gone": KEPT["a rest, while another query writes to the topic"],
    "left": KEPT["renamed, and a backup of before the change starts under the old name"],
    "new-checkpoint": [*BEGUN, ("lost", "A", "earliest"), ("run", "A", 1)],
    "offsets-of": [*HANDED, ("run", "A", 1), ("stop", "A"), ("follow", "B", "A"), ("set", "B", "id", "z")],
    "rows-gone": [*BEGUN, ("delete", "out")],
    "rows-lost": KEPT["decided, and its rows deleted before they were committed"],
    "sink-changed": [
        *HANDED,
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("fork", "B", "A", False),
    ],
    "topic-anew": KEPT["a day with Spark's connector, and the source made anew"],
}
"""In each an error names the word of this kind."""

NAMED = {
    "cluster": (
        "connector/sink/test_sink_steps",
        "a_cluster_that_is_another_one_under_a_living_query_is_named",
    ),
    "new-source": ("connector/sink/test_source_check", "sources_of_files_that_are_exchanged_stop"),
    "no-checkpoint": (
        "connector/sink/test_sink_steps",
        "at_least_once_without_a_checkpoint_asks_whether_its_name_has_decided",
    ),
    "other-rows": (
        "connector/sink/test_sink_steps",
        "where_ends_do_not_say_what_was_read_a_replay_has_the_same_rows",
    ),
    "runs-differently": ("connector/saved/test_run_again", "another_run_stops"),
    "sink-unknown": (
        "connector/checkpoint/test_crosscheck_broker",
        "a_checkpoint_that_was_copied_without_its_notes",
    ),
    "taken-over": (
        "connector/checkpoint/test_crosscheck_broker",
        "the_old_query_of_a_hand_over_is_known_by_the_names_that_it_had",
    ),
    "without-sources": ("connector/sink/test_source_check", "all_sources_of_a_batch_have_to_run"),
    "without-state": (
        "stateful/test_stateful",
        "a_query_whose_state_is_lost_begins_anew_as_it_is_told",
    ),
    "write-again": ("connector/sink/test_write_tokens_spark", "a_topic_that_was_made_anew_under_a_write"),
}
"""What a history does not have: state, named sources, notes that are gone, rows that come another time. A
file and its test. A history's old query of a hand-over is not started again."""


def kinds() -> set[str]:
    """What stands before the first colon of each word, in the sources."""
    sources = [path for room in ("connector", "eoslog/checkpoint") for path in (ROOT / room).rglob("*.py")]
    trees = [ast.parse(path.read_text()) for path in sources]
    constants = dict(pair for tree in trees for pair in _constants(tree))
    found = {word for tree in trees for word in _words(tree, constants)}
    return {kind for word in found for kind in _spelled(word.partition(":")[0])}


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(str(text))):
                yield name, text


def _words(tree: ast.Module, constants: dict[str, str]) -> Iterator[str]:
    """F-strings of functions that speak of accepting, which begin as a word does. What is put in is `{}`."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in {node for one in functions if "accept" in ast.unparse(one) for node in ast.walk(one)}:
        if isinstance(node, ast.JoinedStr):
            text = "".join(_part(part, constants) for part in node.values)
            if re.match(r"[a-z{][a-z{}-]*:\S*$", text):
                yield text


def _part(part: ast.expr, constants: dict[str, str]) -> str:
    match part:
        case ast.Constant(str(text)):
            return text
        case ast.FormattedValue(ast.Name(name)):
            return constants.get(name, "{}")
    return "{}"


def _spelled(kind: str) -> list[str]:
    """Two words are put together from parts."""
    several = {"batch-{}": ["batch-written", "batch-missing"], "{}": ["rows-gone", "write-again"]}
    return several.get(kind, [kind])


def test_every_word_has_its_walk() -> None:
    assert kinds() == {*HISTORIES, *NAMED}


@pytest.mark.parametrize("kind", NAMED)
def test_the_test_that_is_named_has_the_word(kind: str) -> None:
    file, name = NAMED[kind]
    tree = ast.parse((ROOT / "tests" / f"{file}.py").read_text())
    (test,) = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == f"test_{name}"]
    assert f"{kind}:" in ast.unparse(test)


@pytest.mark.parametrize("kind", HISTORIES)
def test_who_sets_the_word_goes_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no later start asks for a word of this kind."""
    taken: list[int] = []
    usual = ways_out.take

    def take(world: World, query: Query, error: Exception, tried: list[str]) -> str | None:
        told = re.findall(rf"start\.accepted=({kind}:[\w.%:-]*\w)", str(error))
        if not told or taken:
            return usual(world, query, error, tried)
        assert ways_out._option(world, query, f"start.accepted={told[-1]}")
        world.accept_loss(query)
        taken.append(len(world.told))
        return "the word"

    monkeypatch.setattr(ways_out, "take", take)
    world = play(HISTORIES[kind])
    assert taken and not world.findings, (world.findings, world.told)
    assert not [line for line in world.told[taken[0] :] if f"{kind}:" in line], world.told
