"""Keys go to partitions as Kafka's clients put them; names that eoslog's sinks made are known from all
others.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from eoslog.connector.commit.decision import ANCHOR, following
from eoslog.connector.commit.transactional_ids import ParticipantSlot, Sink
from eoslog.protocol.names_by_sink import SinkRemains, made, sink_of, sinks_of_groups, sinks_of_ids
from eoslog.protocol.partitioner import murmur2_partition
from eoslog.protocol.producer_identity import ProducerIdentity

# -- keys ----------------------------------------------------------------------------------------
# Keys go to the partitions where Kafka's own clients put them.

# As the Java client's own tests have them, signed there.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def where_kafka_puts(key: bytes | None, partitions: int) -> int:
    return -1 if key is None else (murmur2_of_kafka_python(key) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("key", KNOWN)
def test_known_hashes(key: bytes) -> None:
    most = 2**31 - 1
    assert murmur2_partition(pa.array([key]), most).tolist() == [(KNOWN[key] & 0x7FFFFFFF) % most]


@settings(deadline=None)
@given(
    st.lists(st.none() | st.binary(max_size=70), max_size=60),
    st.integers(1, 2**31 - 1),
    st.sampled_from([pa.binary(), pa.large_binary()]),
    st.integers(0, 3),
)
def test_columns_go_where_single_keys_go(
    keys: list[bytes | None], partitions: int, kind: pa.DataType, cut: int
) -> None:
    column = pa.array([b"before", *keys], kind)[1 + cut :]
    found = murmur2_partition(column, partitions)
    assert found.dtype == np.int32
    assert found.tolist() == [where_kafka_puts(key, partitions) for key in keys[cut:]]


@settings(deadline=None)
@given(
    st.integers(0, 21).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=40)
    ),
    st.integers(1, 2**31 - 1),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.string()]),
    st.integers(0, 2),
)
def test_keys_of_one_length_go_where_single_keys_go(
    keys: list[bytes], partitions: int, kind: pa.DataType, cut: int
) -> None:
    if kind == pa.string():
        keys = [key.hex().encode() for key in keys]
    column = pa.array([b"before", *keys], pa.binary()).cast(kind)[1 + cut :]
    found = murmur2_partition(column, partitions)
    assert found.dtype == np.int32
    assert found.tolist() == [where_kafka_puts(key, partitions) for key in keys[cut:]]


def test_many_short_keys_and_few_long_ones() -> None:
    keys = [bytes(range(length % 256)) * (1 + length // 200) for length in range(300)]
    found = murmur2_partition(pa.array(keys, pa.binary()), 1_000_003)
    assert found.tolist() == [where_kafka_puts(key, 1_000_003) for key in keys]


def test_strings_hash_as_their_bytes() -> None:
    found = murmur2_partition(pa.array(["zürich", None]), 7)
    assert found.tolist() == [where_kafka_puts("zürich".encode(), 7), -1]


def test_chunks_are_one_column() -> None:
    chunked = pa.chunked_array([[b"a"], [b"b", None], []], pa.binary())
    whole = pa.array([b"a", b"b", None])
    assert murmur2_partition(chunked, 5).tolist() == murmur2_partition(whole, 5).tolist()


def test_no_partitions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        murmur2_partition(pa.array([b"a"]), 0)


def test_no_keys() -> None:
    assert murmur2_partition(pa.array([], pa.binary()), 3).tolist() == []
    assert murmur2_partition(pa.nulls(3), 3).tolist() == [-1, -1, -1]


# -- names ---------------------------------------------------------------------------------------
# Which names eoslog's sinks made: told apart from everybody else's, and counted by sink.

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
