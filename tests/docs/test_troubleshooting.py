"""docs/troubleshooting.md has every error of the connector, and quotes what the connector really says."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from eoslog.client.wire.retry import passes
from eoslog.connector.commit.commands import FENCED
from eoslog.errors import ADVICE, RefusedByBroker
from eoslog.protocol.errors import ErrorCode, ErrorKind
from tests.docs.errors_of import HOLE, error_classes, is_said, messages, quoted, raised, texts

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
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
    """The page's sections by their titles."""
    parts = re.split(r"(?m)^#+ (.+)$", PAGE)[1:]
    return dict(zip((title.strip("`") for title in parts[::2]), parts[1::2], strict=True))


@pytest.mark.parametrize("name", sorted({*error_classes(), *OTHERS}))
def test_every_error_has_a_section(name: str) -> None:
    section = sections().get(name)
    assert section, f"docs/troubleshooting.md has no section ## `{name}`"
    assert name == "EoslogError" or "```text" in section, "the section quotes no message"
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
    assert len(quoted(PAGE)) > 40


def test_links_lead_to_sections() -> None:
    anchors = {re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in sections()}
    for target in re.findall(r"\]\(#([^)]+)\)", PAGE):
        assert target in anchors, target


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
