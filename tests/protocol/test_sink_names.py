"""Which names eoslog's sinks made: told apart from everybody else's, and counted by sink."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit.decision import ANCHOR, following
from eoslog.connector.commit.transactional_ids import ParticipantSlot, Sink
from eoslog.protocol.names_by_sink import SinkRemains, made, sink_of, sinks_of_groups, sinks_of_ids
from eoslog.protocol.producer_identity import ProducerIdentity

SLOT = ParticipantSlot(ProducerIdentity(17, 3), 1, "0123abc", 4)
ids = st.text(st.sampled_from("ab-/%.0125F"), min_size=1, max_size=12)


@given(ids)
def test_every_name_that_a_sink_makes_is_told(name: str) -> None:
    sink = Sink(name)
    participant = sink.participant(SLOT)
    assert sink_of(participant) == name
    mine = [participant, sink.coordinator, sink.probe]
    assert sinks_of_ids(mine) == dict.fromkeys(mine, name)
    groups = [sink.group, sink.attempts_group, sink.finished_group, sink.writes_group]
    groups += [following(sink.group, 1), following(sink.writes_group, 2)]
    assert sinks_of_groups({key: {ANCHOR} for key in groups}) == dict.fromkeys(groups, name)


@pytest.mark.parametrize(
    "name",
    ["copy", "copy/1", "copy/17.3/2/w.0", "copy/17.3/1/w", "a/b/1.3/1/w.0", "a/1.3/1/w.0/x", "copy/probe"],
)
def test_what_only_looks_like_it_is_nobodys(name: str) -> None:
    assert sink_of(name) is None
    assert sinks_of_ids([name, "other", "copy-2/17.3/1/w.0"]) == {"copy-2/17.3/1/w.0": "copy-2"}


@pytest.mark.parametrize("topics", [set(), {"orders"}, {ANCHOR, "orders"}])
def test_a_group_with_other_offsets_or_none_is_its_readers(topics: set[str]) -> None:
    assert sinks_of_groups({"copy": topics}) == {}


def test_a_group_of_another_form_is_its_readers() -> None:
    assert sinks_of_groups({"a/b": {ANCHOR}, "a/attempts/b": {ANCHOR}}) == {}


def test_the_driver_s_own_id_is_told_by_its_group() -> None:
    assert sinks_of_ids(["copy", "billing"], ["copy"]) == {"copy": "copy"}
    assert sinks_of_ids(["a%2Fb"], ["a/b"]) == {"a%2Fb": "a/b"}


def test_what_a_sink_made_is_one_line() -> None:
    names = {"copy": "copy", "copy/1.0/0/w.0": "copy", "copy/1.0/1/w.0": "copy", "new/1.0/0/w.0": "new"}
    ages = {"copy/1.0/0/w.0": 12.0, "copy/1.0/1/w.0": 3.0, "billing": 99.0, "new/1.0/0/w.0": None}
    assert made(names, {"copy": "copy", "idle": "idle"}, ages) == [
        SinkRemains("copy", ids=3, open=2, oldest=12.0, groups=1),
        SinkRemains("idle", ids=0, open=0, oldest=None, groups=1),
        SinkRemains("new", ids=1, open=1, oldest=None, groups=0),
    ]
