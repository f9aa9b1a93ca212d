"""docs/errors/ has each message and each error, and messages name its pages."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eoslog
from eoslog.client.wire.retry import passes
from eoslog.connector.commit import faults
from eoslog.connector.commit.commands import FENCED
from eoslog.errors import ADVICE, EoslogError, RefusedByBroker
from eoslog.errors.pages import PAGES as SECTIONS
from eoslog.protocol.errors import ErrorCode, ErrorKind

# -- the errors of the sources -------------------------------------------------------------------
# The connector's error classes and the texts in its source: docs/errors/ is compared with them.
#
# A text is the literal pieces of a string, with one HOLE wherever a value goes in.

HOLE = "\0"
ROOT = Path(eoslog.__file__).parent
ROOMS = ("connector", "client", "errors")


def modules() -> list[Path]:
    """The source files of the connector, of its client, and of their errors."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def error_classes() -> dict[str, type[EoslogError]]:
    """Every class of the connector that derives from EoslogError, itself among them. Those of the commands,
    which other tests may have imported, have pages of their own. Those that a sink makes of them for PySpark
    (let_through), of which another test's may still be there, have their names."""
    for room in ROOMS:
        for found in pkgutil.walk_packages([str(ROOT / room)], f"eoslog.{room}."):
            importlib.import_module(found.name)

    def below(one: type[EoslogError]) -> Iterator[type[EoslogError]]:
        yield one
        for child in one.__subclasses__():
            yield from below(child)

    homes = tuple(f"eoslog.{room}" for room in ROOMS)
    classes = [one for one in below(EoslogError) if one.__module__.startswith(homes)]
    return {one.__name__: one for one in classes if getattr(sys.modules[one.__module__], one.__name__) is one}


def raised() -> dict[str, set[str]]:
    """Names of the classes that the connector raises or makes, and the files that do so."""
    found: dict[str, set[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            call = node.exc if isinstance(node, ast.Raise) else None
            named = call.func if isinstance(call, ast.Call) else None
            if isinstance(named, ast.Name) and named.id[0].isupper():
                found.setdefault(named.id, set()).add(path.name)
    return found


def texts() -> list[str]:
    """Every string of the connector's source, with the strings that it is put together from."""
    found = []
    for path in modules():
        tree = ast.parse(path.read_text())
        scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        everywhere = _strings(tree, {})
        every: tuple[ast.Module | ast.FunctionDef, ...] = (tree, *scopes)
        for scope in every:
            known = everywhere | _strings(scope, everywhere)
            found += [text for node in ast.walk(scope) if (text := _text(node, known)) is not None]
    return found


def _strings(scope: ast.Module | ast.FunctionDef, known: dict[str, str]) -> dict[str, str]:
    """Names that stand for a string in a module or a function."""
    found = {}
    for node in scope.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = _text(node.value, known)
            if text is not None:
                found[node.targets[0].id] = text
    return found


def _text(node: ast.AST, constants: dict[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        pieces = [_piece(value, constants) for value in node.values]
        return re.sub(f"{HOLE}+", HOLE, "".join(pieces))
    return None


def _piece(value: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    inner = value.value if isinstance(value, ast.FormattedValue) else value
    if isinstance(inner, ast.Name):
        return constants.get(inner.id, HOLE)
    if isinstance(inner, ast.Attribute) and inner.attr == "advice" and isinstance(inner.value, ast.Name):
        return str(getattr(faults, inner.value.id).advice)
    return HOLE


SHOWN = "Where Spark shows it"
"""A section with a block that is more than a message."""


SHOWN = "Where Spark shows it"
"""A section with a block that is more than a message."""


def quoted(page: str) -> list[tuple[str, str]]:
    """(title of the section, message) of every message that the page quotes: a line of a block, or code in
    the first column of a table of messages."""
    found, title = [], ""
    for heading, block, table in re.findall(r"(?m)^#+ (.+)$|^```text\n((?s:.+?))\n```$|((?:^\|.+\n)+)", page):
        title = heading.strip("`") or title
        lines = [] if title == SHOWN else block.splitlines()
        if table.startswith("| message |"):
            firsts = [row.split(" | ")[0] for row in table.splitlines()]
            lines = [text for first in firsts for text in re.findall("`([^`]+)`", first)]
        found += [(title, line) for line in lines]
    return found


def is_said(message: str, said: list[str]) -> bool:
    """Whether a text of the source holds the message; `<...>` in the message stands for a value, or for
    a piece of the text."""
    wanted = [piece for piece in re.split(r"<[^<>]*>", message) if piece.strip(" :-();,")]
    return any(_in_order(wanted, text) for text in said)


def _in_order(pieces: list[str], text: str) -> bool:
    at = 0
    for piece in pieces:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return bool(pieces)


def messages() -> list[tuple[str, str, str]]:
    """(place, class, text) of every error that is raised with a text of its own."""
    found = []
    for path in modules():
        tree = ast.parse(path.read_text())
        everywhere = _strings(tree, {})
        for scope in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            known = everywhere | _strings(scope, everywhere)
            for node in ast.walk(scope):
                if not isinstance(node, ast.Raise):
                    continue
                call = node.exc
                named = call.func if isinstance(call, ast.Call) else None
                if not isinstance(call, ast.Call) or not isinstance(named, ast.Name) or not call.args:
                    continue
                if not named.id.strip("_")[0].isupper():
                    continue  # a function that makes the error
                text = _text(call.args[0], known)
                if text is not None:
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", named.id, text))
    return found


# -- the pages -----------------------------------------------------------------------------------
# docs/errors/ has every error of the connector, and quotes what the connector really says.

ERRORS = Path(__file__).parents[2] / "docs" / "errors"
INDEX = "index.md"
PAGES = {path.name: path.read_text() for path in sorted(ERRORS.glob("*.md"))}
PAGE = "\n".join(PAGES.values())
INTERNAL = {
    "OSError": "becomes CheckpointUnreadable",
    "FileNotFoundError": "the same",
    "JksError": "becomes OptionError",
    "FormatError": "becomes CheckpointUnreadable",
    "StateGone": "becomes CheckpointUnreadable",
    "RuntimeError": "a mistake in the connector itself, or a call outside of Spark",
    "ValueError": "the same, or caught where it is raised",
    "AssertionError": "the same",
    "ConnectionError": "becomes BrokerUnreachable",
    "ConnectionResetError": "becomes ConnectionLost",
    "TimeoutError": "becomes ConnectionLost",
    "ProtocolError": "becomes ConnectionLost",
    "KafkaError": "made by clients of the protocol alone",
    "_Again": "caught by the producer",
    "StillPending": "caught by the runner: sink_transaction.py finds out why, and says what to do",
}
OTHERS = ("RefusedByBroker", "CorruptBatch", "EnvironmentUnfit")
"""Errors that users meet and that do not derive from EoslogError."""
SAID = texts()


def sections() -> dict[str, str]:
    """The pages' sections by their titles."""
    return {title: text for page in PAGES.values() for title, text in sections_of(page)}


def sections_of(page: str) -> Iterator[tuple[str, str]]:
    """Title and text of each section."""
    parts = re.split(r"(?m)^#+ (.+)$", page)[1:]
    yield from zip((title.strip("`") for title in parts[::2]), parts[1::2], strict=True)


def anchor(title: str) -> str:
    """What a link to a section with this title ends with."""
    return re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", sorted({*error_classes(), *OTHERS}))
def test_every_error_has_a_section(name: str) -> None:
    section = sections().get(name)
    assert section, f"no page of docs/errors/ has a section ## `{name}`"
    assert name == "EoslogError" or name in dict(quoted(PAGE)), "the section quotes no message"
    assert len(re.sub(r"(?s)```text.*?```", "", section).strip()) > 60, "why, and what to do?"


def test_nothing_else_is_raised() -> None:
    known = {*error_classes(), *INTERNAL, *OTHERS}
    assert set(raised()) <= known, {name: raised()[name] for name in set(raised()) - known}


@pytest.mark.parametrize(("title", "message"), quoted(PAGE), ids=lambda text: str(text)[:40])
def test_a_quoted_message_is_one_of_the_connector_s(title: str, message: str) -> None:
    assert is_said(message, SAID) or title in ("RefusedByBroker", "CorruptBatch"), (
        f"{title}: nobody says {message!r}"
    )


def test_the_judge_sees_what_is_made_up() -> None:
    assert not is_said("<topic> was swallowed by a whale", SAID)
    assert not is_said("to decide another driver owns the sink <sink>", SAID)
    assert len(quoted(PAGE)) > 100
    table = "| message | what |\n|---|---|\n| `b`<br>`c` | `d` |\n"
    page = f"## `A`\n\n{table}\n| e |\n|---|\n| `f` |\n\n```text\ng\nh\n```\n"
    assert quoted(page) == [("A", "b"), ("A", "c"), ("A", "g"), ("A", "h")]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_one_title_and_no_heading_twice(name: str) -> None:
    titles = [title for title, _ in sections_of(re.sub(r"(?ms)^```.*?^```$", "", PAGES[name]))]
    heads = re.findall(r"(?m)^# ", re.sub(r"(?ms)^```.*?^```$", "", PAGES[name]))
    assert len(heads) == 1 and len({*titles}) == len(titles)


def test_the_index_has_every_section_with_its_page() -> None:
    """But warnings: each names its section itself."""
    for name, page in PAGES.items():
        for title in re.findall(r"(?m)^## (.+)$", page):
            listed = f"[{title}]({name}#{anchor(title)})" in PAGES[INDEX]
            assert listed or name in (INDEX, "warnings.md"), title
    assert "](warnings.md)" in PAGES[INDEX]


@pytest.mark.parametrize("section", SECTIONS)
def test_what_a_message_names_is_on_its_page(section: str) -> None:
    titles = [title for title, _ in sections_of((ERRORS.parent / SECTIONS[section]).read_text())]
    assert section in map(anchor, titles)


def test_every_section_that_is_known_is_named_by_a_message() -> None:
    source = "".join(path.read_text() for path in modules())
    assert {*re.findall(r"""\bsee\(['"]([\w-]+)['"]\)""", source)} == {*SECTIONS}


KAFKAS = re.compile(r"(?m)^## .+\n\nKafka's name: (.+)\.$")
SEARCHED = {
    "ProducerFencedException": "SinkFenced",
    "InvalidProducerEpochException": "SinkFenced",
    "InvalidPidMappingException": "SinkFenced",
    "OutOfOrderSequenceException": "ProduceFailed",
    "UnknownProducerIdException": "ProduceFailed",
    "NotLeaderOrFollowerException": "RetriesExhausted",
    "NotCoordinatorException": "RetriesExhausted",
    "CoordinatorNotAvailableException": "RetriesExhausted",
    "TransactionalIdAuthorizationException": "RefusedByBroker",
    "OffsetOutOfRangeException": "DataLoss",
    "UnknownTopicOrPartitionException": "UnknownTopic",
}


@pytest.mark.parametrize("name", SEARCHED)
def test_kafka_s_name_of_an_error_is_in_its_first_line(name: str) -> None:
    first = sections()[SEARCHED[name]].strip().splitlines()[0]
    assert f"`{name}`" in first and len(KAFKAS.findall(PAGE)) > 10


STEP = re.compile(
    r"\b(add|begin|bring|cast|check|choose|convert|correct|did you mean|end it|fill|give|go on|leave|lower|"
    r"make|name|publish|raise|read|restart|see|select|set|start|stop|type|use|write|keep)\b",
    re.IGNORECASE,
)
PASSED_ON = {
    "_NotSmall": "not seen: tasks read instead",
    "ConnectionLost": "tried again; RetriesExhausted says what to do",
    "BrokerUnreachable": "of one address; the one for all of them says what to do",
    "OffsetsGone": "becomes DataLoss, which says what to do",
    "TopicRecreated": "becomes DataLoss, which says what to do",
    "CorruptBatch": "passed on by fetch.py, which says what to do",
    "CheckpointUnreadable": "says it itself, whatever the reason",
    "ParticipantsLost": "the advice is in the text that it begins with",
    "SchemaError": "the hint that is put in",
    "ProduceFailed": "the advice is that of the broker's code",
    "OptionError": "its last words are values or advice that are put in",
    **INTERNAL,
}


@pytest.mark.parametrize(("place", "name", "text"), messages(), ids=lambda text: str(text)[:50])
def test_a_message_says_the_next_step(place: str, name: str, text: str) -> None:
    if name in ("OptionError", "SchemaError"):
        assert STEP.search(text) or text.endswith(HOLE), (place, text)
    else:
        assert STEP.search(text) or name in PASSED_ON, (place, text)


def test_every_refusal_of_a_right_or_a_limit_has_advice() -> None:
    """Codes that a user meets and that do not pass by themselves."""
    for code in ErrorCode:
        if code.name.endswith("_AUTHORIZATION_FAILED") and not code.name.startswith("DELEGATION"):
            assert "right" in ADVICE[code], code
    for number in ADVICE:
        code = ErrorCode(number)
        said = str(RefusedByBroker(code, "Fetch of t-0"))
        assert said.startswith("Fetch of t-0: ") and code.name in said and said.endswith(ADVICE[code])


@pytest.mark.parametrize("name", [*sorted(error_classes()), "RefusedByBroker"])
def test_errors_travel_between_processes(name: str) -> None:
    """As Spark's Python workers hand them on, with all that they say."""
    made = RefusedByBroker(29, "Fetch of t-0") if name == "RefusedByBroker" else None
    if made is None:
        kind = error_classes()[name]
        made = kind("/place", "why") if name == "CheckpointUnreadable" else kind("what happened")  # type: ignore
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made) and str(again) == str(made)


def test_what_is_tried_again_is_what_the_table_of_codes_says() -> None:
    """KIP-360's split has one table, the codes'; nothing fatal is tried again, nor what fences a driver."""
    for code in ErrorCode:
        assert passes(RefusedByBroker(code)) == (code.kind is ErrorKind.RETRIABLE)
        assert not (code in FENCED and passes(RefusedByBroker(code)))
