"""Options of a shadow that do not fit, and writers that would touch what belongs to the running query."""

from contextlib import nullcontext

import pytest

from eoslog.connector.checkpoint.shadow_check import check_apart, check_taken
from eoslog.connector.offsets.offsets import ShadowCut
from eoslog.connector.options.source_options import source_options
from eoslog.errors import OptionError

SHADOW = {"shadow.of": "v1", "shadow.topic": "totals", "shadow.into": "new", "kafka.group.id": "g"}
CUT = ShadowCut("v1", "g", 3, {("totals", 0): 5}, {("new", 0): 5})


def options(**more: str | None) -> object:
    given: dict[str, str | None] = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", **SHADOW}
    given |= {name.replace("__", "."): value for name, value in more.items()}
    return source_options({name: value for name, value in given.items() if value is not None}, stream=True)


@pytest.mark.parametrize("missing", list(SHADOW))
def test_all_of_them_are_needed(missing: str) -> None:
    with pytest.raises(OptionError, match=rf"needs {missing} as well"):
        options(**{missing: None})


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"transactional__id": "v1"}, "transactional.id and shadow.of are both given"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger and shadow.of are both given"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger and shadow.of are both given"),
        ({"cluster__moved__to": "x"}, "cluster.moved.to and shadow.of are both given"),
        ({"shadow__into": "totals"}, "both 'totals'"),
    ],
)
def test_what_does_not_fit(more: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        options(**more)


@pytest.mark.parametrize(
    ("sink", "group", "topic", "says"),
    [
        ("v1", None, "new", "transactional.id=v1"),
        ("v2", "g", "new", "kafka.group.id=g"),
        ("v2", None, "totals", r"shadow.into \(new\) alone"),
        (None, None, None, r"shadow.into \(new\) alone"),
    ],
)
def test_a_writer_is_kept_apart(sink: str | None, group: str | None, topic: str | None, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        check_apart([CUT], sink, group, topic)


def test_a_shadow_that_has_taken_over_is_none() -> None:
    """It would leave the sink that it has now, and its rows would be in the shadow's topic alone."""
    with pytest.raises(OptionError, match=r"taken that query's place.*transactional.id=v1, kafka.group.id=g"):
        check_apart([CUT], "v2", None, "new", "v1")
    with pytest.raises(OptionError, match="taken that query's place"):
        check_apart([CUT], "v1", "g", "new", "v1")
    check_apart([CUT], "v1", "g", "totals", "v1")  # what that start has planned


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("v2", None, "totals", "v2"), "has not taken that query's place"),
        (("v2", None, None, "v2"), "has not taken that query's place"),
        (("v1", "g", "totals", "v2"), r"eoslog shadow take-over /c\. .* checkpoint rewind /c --to-batch 3"),
        (("v1", None, "new", "v2"), "has not taken"),
        (("v2", "g", "new", "v2"), "has not taken"),
        ((None, None, "totals", None), "has not taken"),
        (("v1", "g", "totals", "v1"), None),  # it has
        (("v2", None, "new", "v2"), None),  # it goes on in its own topic
        (("v2", "other", "third", "v2"), None),
    ],
)
def test_a_shadow_that_is_started_as_a_query(
    given: tuple[str | None, str | None, str | None, str | None], says: str | None
) -> None:
    stops = nullcontext() if says is None else pytest.raises(OptionError, match=says)
    with stops:
        check_taken([CUT], *given, "/c", 4)


def test_a_writer_apart() -> None:
    check_apart([CUT], "v2", "other", "new", "v2")
    check_apart([CUT], "v2", "other", "new")
    check_apart([], "v1", "g", None)


def test_two_sources_would_be_at_different_decisions() -> None:
    with pytest.raises(OptionError, match="several sources"):
        check_apart([CUT, CUT], "v2", None, "new")
