"""Frames, headers and the served APIs: against kio, as clients need them, under cuts and garbage."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
import re
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.broker.network.dispatch import served as declared_apis
from eoslog.protocol import messages
from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.frames import (
    FrameError,
    FrameReader,
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from eoslog.protocol.schema import ProtocolError
from tests.protocol import kio_oracle as oracle

every_version = pytest.mark.parametrize(
    ("api", "version"),
    [
        pytest.param(api, version, id=f"{api.name}-v{version}")
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
    ],
)


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


@every_version
@pytest.mark.parametrize("client_id", ["eoslog-ü", "", None])
def test_request_headers_are_kios(api: Api, version: int, client_id: str | None) -> None:
    header: Any = oracle.payload_type(api.key, "request", version).__header_schema__
    theirs = oracle.encode(
        header(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=2**31 - 1,
            client_id=client_id,
        )
    )
    body = b"".join(api.request.write(version, {}))
    frame = b"".join(encode_request(api.key, version, 2**31 - 1, client_id, {}))
    assert frame == framed(theirs + body)
    expected = RequestHeader(api.key, version, 2**31 - 1, client_id)
    assert decode_request_header(frame[4:]) == (expected, len(theirs))


@every_version
def test_response_headers_are_kios(api: Api, version: int) -> None:
    header: Any = oracle.payload_type(api.key, "response", version).__header_schema__
    theirs = oracle.encode(header(correlation_id=-5))
    frame = b"".join(encode_response(api.key, version, -5, {}))
    assert frame == framed(theirs + b"".join(api.response.write(version, {})))
    correlation_id, message = decode_response(api.key, version, frame[4:])
    assert correlation_id == -5
    assert message == api.response.read(version, b"".join(api.response.write(version, {})))[0]


def test_the_response_of_api_versions_never_has_header_tags() -> None:
    for version in range(5):
        frame = b"".join(encode_response(ApiKey.API_VERSIONS, version, 7, {"error_code": 35}))
        assert frame[4:10] == b"\0\0\0\x07\0\x23"


def test_unknown_tags_in_headers_are_skipped() -> None:
    tags = b"\x02\x00\x01x\x85\x01\x80\x01" + b"y" * 128
    head = struct.pack(">hhih", 0, 9, 3, 2) + b"me"
    header, pos = decode_request_header(head + tags + b"body")
    assert header == RequestHeader(0, 9, 3, "me")
    assert pos == len(head + tags)
    body = b"".join(APIS[ApiKey.PRODUCE].response.write(9, {"throttle_time_ms": 4}))
    assert decode_response(0, 9, struct.pack(">i", 3) + tags + body)[1]["throttle_time_ms"] == 4


def test_a_version_that_is_not_served_still_has_a_header() -> None:
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 1, -1) + b"\0" + b"\x05junk"
    header, pos = decode_request_header(frame)
    assert (header.api_version, pos) == (99, 11)


def test_headers_refuse_nonsense() -> None:
    good = b"".join(encode_request(ApiKey.METADATA, 12, 1, "client", {}))[4:]
    _, start = decode_request_header(good)
    for cut in range(start):
        with pytest.raises(ProtocolError):
            decode_request_header(good[:cut])
    with pytest.raises(ProtocolError, match="12345"):
        decode_request_header(struct.pack(">hhih", 12345, 0, 1, -1))
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode_request_header(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xff")
    with pytest.raises(ProtocolError):
        decode_request_header(struct.pack(">hhih", 3, 1, 1, -2))


def test_responses_refuse_cuts_and_leftovers() -> None:
    frame = b"".join(encode_response(ApiKey.METADATA, 12, 1, {"brokers": [{"host": "h"}]}))[4:]
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_response(ApiKey.METADATA, 12, frame[:cut])
    with pytest.raises(ProtocolError, match="1 bytes of its frame unread"):
        decode_response(ApiKey.METADATA, 12, frame + b"\0")


def test_random_frames_are_refused_or_read() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        frame = rng.randbytes(rng.randrange(40))
        if rng.random() < 0.7:
            frame = struct.pack(">hh", rng.choice(list(ApiKey)), rng.randrange(14)) + frame
        try:
            _, pos = decode_request_header(frame)
        except ProtocolError:
            continue
        assert 0 <= pos <= len(frame)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_come_out_however_the_stream_is_cut(contents: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, contents))
    reader, frames, pos = FrameReader(40), [], 0
    while pos < len(stream):
        size = data.draw(st.integers(1, 30))
        frames += reader.feed(stream[pos : pos + size])
        pos += size
    assert [bytes(frame) for frame in frames] == contents
    assert reader.pending == 0


def test_frames_own_their_memory() -> None:
    reader, buffer = FrameReader(100), bytearray(framed(b"first") + framed(b"second")[:7])
    frames = reader.feed(buffer)
    buffer[:] = b"\0" * len(buffer)
    rest = bytearray(framed(b"second")[7:])
    frames += reader.feed(memoryview(rest))
    rest[:] = b"\0" * len(rest)
    assert [bytes(frame) for frame in frames] == [b"first", b"second"]
    frames[0][:] = b"FIRST"
    assert bytes(frames[1]) == b"second"


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_absurd_sizes_are_refused(size: int) -> None:
    with pytest.raises(FrameError, match=str(size)):
        FrameReader(100).feed(struct.pack(">i", size))
    split = FrameReader(100)
    assert split.feed(struct.pack(">i", size)[:2]) == []
    with pytest.raises(FrameError):
        split.feed(struct.pack(">i", size)[2:])


def test_a_claimed_size_takes_no_memory() -> None:
    reader = FrameReader(2**30)
    tracemalloc.start()
    reader.feed(struct.pack(">i", 2**30) + b"x" * 1000)
    reader.feed(b"y" * 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000
    assert reader.pending == 2004


def test_a_frame_in_many_pieces_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = []
    cut = FrameReader._cut

    def noted(self: FrameReader, view: memoryview) -> Any:
        cuts.append(len(view))
        return cut(self, view)

    monkeypatch.setattr(FrameReader, "_cut", noted)
    reader, stream = FrameReader(10_000), framed(b"z" * 10_000)
    frames = [frame for pos in range(0, len(stream), 10) for frame in reader.feed(stream[pos : pos + 10])]
    assert [len(frame) for frame in frames] == [10_000]
    assert cuts == [10, 10_004]


def test_requests_refuse_what_does_not_fit() -> None:
    with pytest.raises(ProtocolError, match="client id"):
        encode_request(ApiKey.METADATA, 12, 1, "x" * 40_000, {})
    with pytest.raises(ProtocolError, match="99"):
        encode_request(ApiKey.METADATA, 99, 1, "x", {})


def test_records_are_not_copied_into_a_frame() -> None:
    batch = bytearray(b"batch")
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": [batch, b"tail"]}]}]
    parts = encode_request(ApiKey.PRODUCE, 9, 1, "x", {"topic_data": topics})
    assert any(part is batch for part in parts)
    assert struct.unpack(">i", bytes(parts[0][:4])) == (len(b"".join(parts)) - 4,)


# -- the served APIs -----------------------------------------------------------------------------
# The served APIs and those we speak, as clients have been seen to need them.

# key, name, first flexible version, versions named to clients, versions served
EXPECTED = [
    (0, "Produce", 9, (0, 13), (3, 13)),
    (1, "Fetch", 12, (4, 18), (4, 18)),
    (2, "ListOffsets", 6, (1, 11), (1, 11)),
    (3, "Metadata", 9, (0, 13), (0, 13)),
    (8, "OffsetCommit", 8, (2, 10), (2, 10)),
    (9, "OffsetFetch", 6, (1, 10), (1, 10)),
    (10, "FindCoordinator", 3, (0, 6), (0, 6)),
    (11, "JoinGroup", 6, (0, 9), (0, 9)),
    (12, "Heartbeat", 4, (0, 4), (0, 4)),
    (13, "LeaveGroup", 4, (0, 5), (0, 5)),
    (14, "SyncGroup", 4, (0, 5), (0, 5)),
    (15, "DescribeGroups", 5, (0, 6), (0, 6)),
    (16, "ListGroups", 3, (0, 5), (0, 5)),
    (17, "SaslHandshake", 32768, (0, 1), (0, 1)),
    (18, "ApiVersions", 3, (0, 4), (0, 4)),
    (19, "CreateTopics", 5, (2, 7), (2, 7)),
    (20, "DeleteTopics", 4, (1, 6), (1, 6)),
    (21, "DeleteRecords", 2, (0, 2), (0, 2)),
    (22, "InitProducerId", 2, (0, 6), (0, 6)),
    (23, "OffsetForLeaderEpoch", 4, (2, 4), (2, 4)),
    (24, "AddPartitionsToTxn", 3, (0, 5), (0, 5)),
    (25, "AddOffsetsToTxn", 3, (0, 4), (0, 4)),
    (26, "EndTxn", 3, (0, 5), (0, 5)),
    (27, "WriteTxnMarkers", 1, (1, 2), (1, 2)),
    (28, "TxnOffsetCommit", 3, (0, 5), (0, 5)),
    (29, "DescribeAcls", 2, (1, 3), (1, 3)),
    (30, "CreateAcls", 2, (1, 3), (1, 3)),
    (31, "DeleteAcls", 2, (1, 3), (1, 3)),
    (32, "DescribeConfigs", 4, (1, 4), (1, 4)),
    (33, "AlterConfigs", 2, (0, 2), (0, 2)),
    (34, "AlterReplicaLogDirs", 2, (1, 2), (1, 2)),
    (35, "DescribeLogDirs", 2, (1, 5), (1, 5)),
    (36, "SaslAuthenticate", 2, (0, 2), (0, 2)),
    (37, "CreatePartitions", 2, (0, 3), (0, 3)),
    (42, "DeleteGroups", 2, (0, 2), (0, 2)),
    (43, "ElectLeaders", 2, (0, 2), (0, 2)),
    (44, "IncrementalAlterConfigs", 1, (0, 1), (0, 1)),
    (45, "AlterPartitionReassignments", 0, (0, 1), (0, 1)),
    (46, "ListPartitionReassignments", 0, (0, 0), (0, 0)),
    (47, "OffsetDelete", 32768, (0, 0), (0, 0)),
    (48, "DescribeClientQuotas", 1, (0, 1), (0, 1)),
    (50, "DescribeUserScramCredentials", 0, (0, 0), (0, 0)),
    (51, "AlterUserScramCredentials", 0, (0, 0), (0, 0)),
    (55, "DescribeQuorum", 0, (0, 2), (0, 2)),
    (57, "UpdateFeatures", 0, (0, 2), (0, 2)),
    (60, "DescribeCluster", 0, (0, 2), (0, 2)),
    (61, "DescribeProducers", 0, (0, 0), (0, 0)),
    (65, "DescribeTransactions", 0, (0, 0), (0, 0)),
    (66, "ListTransactions", 0, (0, 2), (0, 2)),
    (68, "ConsumerGroupHeartbeat", 0, (0, 1), (0, 1)),
    (69, "ConsumerGroupDescribe", 0, (0, 1), (0, 1)),
    (74, "ListConfigResources", 0, (0, 1), (0, 1)),
    (75, "DescribeTopicPartitions", 0, (0, 0), (0, 0)),
]


Range = tuple[int, int]


@pytest.mark.parametrize("line", EXPECTED, ids=[line[1] for line in EXPECTED])
def test_versions(line: tuple[int, str, int, Range, Range]) -> None:
    key, name, flexible, named, served = line
    api = APIS[ApiKey(key)]
    assert (api.key, api.name, api.flexible_from) == (key, name, flexible)
    assert (api.min_version, api.max_version) == served
    declared = declared_apis()[api.key]
    assert declared.versions == served
    assert (declared.named_from, declared.versions.last) == named


def test_the_table_is_complete() -> None:
    assert sorted(APIS) == sorted(ApiKey) == [*declared_apis()] == [row[0] for row in EXPECTED]


def test_every_file_of_messages_belongs_to_a_key_or_to_a_log() -> None:
    files = {found.name for found in pkgutil.iter_modules(messages.__path__)}
    assert files == {key.file for key in ApiKey} | {"group_records"}


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_line_above_the_messages_says_their_name_and_key(api: Api) -> None:
    file = importlib.import_module(f"{messages.__name__}.{api.key.file}")
    above = rf"(?m)^# {api.name} \(key {api.key:d}\): .*\n(#.*\n)*\n{api.key.name}_REQUEST = Schema"
    assert re.search(above, inspect.getsource(file))
    assert (api.request.name, api.response.name) == (f"{api.name}Request", f"{api.name}Response")
    assert api.request.versions == api.response.versions
