"""Finds in the schemas where an answer has error codes, and makes error answers as valid as real ones.

If an API has one error for a whole request, that one is set. If it has one for each topic, partition, group
or resource, each of those that the request names gets the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.fields import INT16, Array, Field, Struct
from eoslog.protocol.schema import Message

MISREAD = frozenset(
    {ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)
"""APIs whose clients misread an error of the whole request, unless it is one they know:

- Fetch: it is the session's. With another error librdkafka sees an answer without news, and asks again.
- Metadata (from 13): it exists to send clients back to their first addresses (KIP-1102). With another error
  Java's admin client sees a cluster without topics.
- ApiVersions: clients see a broker that serves nothing, or one from before this API.
- SaslHandshake, SaslAuthenticate: clients see a refusal, which is final; after a fault it is also unknown
  how far the exchange got.
"""

_AT_BOTH = frozenset({ApiKey.ELECT_LEADERS})
"""APIs that repeat the error of the whole request in each part."""

_CODES = ("error_code", "partition_error_code")
_MESSAGE = "error_message"

# Where the parts of an answer are in the request, if not under the same name. All that exist count;
# "a.b" means the `b` of every `a`.
_ASKED_AS = {
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "partition_responses": ("partition_data",),
    "partitions": ("partition_indexes",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "results": ("resources", "topics", "creations", "groups_names", "deletions", "upsertions", "dirs.topics"),
    "filter_results": ("filters",),
    "groups": ("group_ids",),
    "coordinators": ("coordinator_keys",),
    "transaction_states": ("transactional_ids",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
}

# What identifies a part: the fields of the answer, and their names in the request.
_NAMES = {
    "name": ("name",),
    "topic": ("topic", "name"),
    "topic_name": ("name",),
    "topic_id": ("topic_id",),
    "index": ("index",),
    "partition": ("partition",),
    "partition_index": ("partition_index", "partition", "index"),
    "partition_id": ("partition",),
    "group_id": ("group_id",),
    "transactional_id": ("transactional_id",),
    "producer_id": ("producer_id",),
    "resource_type": ("resource_type",),
    "resource_name": ("resource_name",),
    "user": ("name",),
    "entity": ("entity",),
    "key": ("key",),
}

# Values of the fields without a meaning beside an error, if not their default.
_NOTHING = {
    "base_offset": -1, "high_watermark": -1, "low_watermark": -1, "committed_offset": -1,
    "node_id": -1, "port": -1, "producer_id": -1, "producer_epoch": -1,
    "aborted_transactions": None, "records": b"",
}  # fmt: skip


def error_of_all(key: int, version: int, code: int, message: str | None = None) -> Message | None:
    """The answer with one error for the whole request, whatever the request was.

    None if this version has no field for it, or clients would misread it.
    """
    return None if key in MISREAD else _of_all(key, version, code, message)


def error_of_parts(
    key: int, version: int, request: Mapping[str, Any], code: int, message: str | None = None
) -> Message:
    """The answer's lists of parts that can have errors: an item for each part of the request."""
    return _parts(APIS[ApiKey(key)].response.struct, version, request, code, message)


def error_answer(
    key: int, version: int, request: Mapping[str, Any], code: int, message: str | None = None
) -> Any:
    """The answer, of the API's type, with an error for all that the request asked about.

    None if that is not possible: this version has no field for it and the request names nothing, or the
    request wants no answer (Produce with acks=0).
    """
    if key == ApiKey.PRODUCE and request["acks"] == 0:
        return None
    whole = error_of_all(key, version, code, message)
    if whole is not None and key not in _AT_BOTH:
        return whole
    parts = error_of_parts(key, version, request, code, message)
    if whole is not None or any(parts.values()):
        return parts | (whole or {})
    return _of_all(key, version, code, message)


def errors_in(key: int, answer: Message | None) -> dict[int, int]:
    """How often an answer has each error code. None: there is no answer (acks=0). Thread-safe."""
    places, found = _error_places(key), dict[int, int]()
    if answer is not None and places is not None:
        _count(answer, places, found)
    return found


def _of_all(key: int, version: int, code: int, message: str | None) -> Message | None:
    return _own(APIS[ApiKey(key)].response.struct, version, code, message) or None


def _own(struct: Struct, version: int, code: int, message: str | None) -> Message:
    """The fields of a struct, without its lists, that carry an error; none if it has no field for one."""
    fields = [field for field in struct.fields if version in field.versions]
    found: Message = {field.name: code for field in fields if field.name in _CODES}
    if not found:
        return found
    for field in fields:
        if field.name == _MESSAGE:
            found[_MESSAGE] = message if message or version in field.nullable else ""
        elif field.name in _NOTHING:
            found[field.name] = _NOTHING[field.name]
    return found


def _parts(struct: Struct, version: int, asked: Mapping[str, Any], code: int, message: str | None) -> Message:
    return {
        field.name: [_part(item, version, one, code, message) for one in _asked(field.name, asked)]
        for field in struct.fields
        if version in field.versions and (item := _item(field)) is not None and _places(item)
    }


def _part(struct: Struct, version: int, asked: Any, code: int, message: str | None) -> Message:
    """One item: what identifies it, and its error, or those of its parts."""
    named = _named(struct, version, asked)
    own = _own(struct, version, code, message)
    return named | (own or _parts(struct, version, asked, code, message))


def _named(struct: Struct, version: int, asked: Any) -> Message:
    names = [field.name for field in struct.fields if version in field.versions and field.name in _NAMES]
    if not isinstance(asked, dict):  # a plain name or number: it belongs to the first field
        return {names[0]: asked}
    said = ((name, [known for known in _NAMES[name] if known in asked]) for name in names)
    return {name: asked[known[0]] for name, known in said if known}


def _item(field: Field) -> Struct | None:
    """The struct of a list's items, if it is a list of structs."""
    kind = field.type
    return kind.of if isinstance(kind, Array) and isinstance(kind.of, Struct) else None


def _asked(name: str, asked: Mapping[str, Any]) -> Iterator[Any]:
    for path in (name, *_ASKED_AS.get(name, ())):
        yield from _at(path, asked)


def _at(path: str, asked: Mapping[str, Any]) -> Iterator[Any]:
    head, _, rest = path.partition(".")
    for item in asked.get(head) or ():
        if rest:
            yield from _at(rest, item)
        else:
            yield item


class _Places(NamedTuple):
    """Where a message has error codes: fields of its own, and lists of structs that have some."""

    codes: tuple[str, ...]
    parts: tuple[tuple[str, Any], ...]


@cache
def _error_places(key: int) -> _Places | None:
    return _places(APIS[ApiKey(key)].response.struct)


def _places(struct: Struct) -> _Places | None:
    codes = tuple(field.name for field in struct.fields if _is_code(field))
    found = [(field.name, _places(item)) for field in struct.fields if (item := _item(field)) is not None]
    parts = tuple((name, places) for name, places in found if places is not None)
    return _Places(codes, parts) if codes or parts else None


def _is_code(field: Field) -> bool:
    return field.type is INT16 and (field.name == "error_code" or field.name.endswith("_error_code"))


def _count(message: Message, places: _Places, found: dict[int, int]) -> None:
    for name in places.codes:
        code = message.get(name)
        if code:
            found[code] = found.get(code, 0) + 1
    for name, deeper in places.parts:
        for item in message.get(name) or ():
            _count(item, deeper, found)


# -- versions that know a code ---------------------------------------------------------------------
# Which version of an API knows which error code, and which code clients of older versions get instead.
#
# Every version that is served knows a code without a row.


NEVER = 2**15
"""Above every version: no client of this API knows the code."""


class Known(NamedTuple):
    """The first version that knows a code, and the code that older ones get."""

    since: int
    older: E


_VERIFYING = Known(NEVER, E.NOT_ENOUGH_REPLICAS)
"""For the coordinator's errors in an answer to Produce: after this code every producer tries again, without
asking for new metadata first (KIP-890)."""

VERSIONS: Mapping[tuple[ApiKey, E], Known] = {
    # KIP-112
    (ApiKey.PRODUCE, E.KAFKA_STORAGE_ERROR): Known(4, E.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.FETCH, E.KAFKA_STORAGE_ERROR): Known(6, E.NOT_LEADER_OR_FOLLOWER),
    # KIP-322
    (ApiKey.DELETE_TOPICS, E.TOPIC_DELETION_DISABLED): Known(3, E.INVALID_REQUEST),
    # KIP-516
    (ApiKey.PRODUCE, E.UNKNOWN_TOPIC_ID): Known(13, E.UNKNOWN_TOPIC_OR_PARTITION),
    (ApiKey.FETCH, E.UNKNOWN_TOPIC_ID): Known(13, E.UNKNOWN_TOPIC_OR_PARTITION),
    # KIP-588
    (ApiKey.INIT_PRODUCER_ID, E.PRODUCER_FENCED): Known(4, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_PARTITIONS_TO_TXN, E.PRODUCER_FENCED): Known(2, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_OFFSETS_TO_TXN, E.PRODUCER_FENCED): Known(2, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.END_TXN, E.PRODUCER_FENCED): Known(2, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.PRODUCE, E.PRODUCER_FENCED): Known(NEVER, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.TXN_OFFSET_COMMIT, E.PRODUCER_FENCED): Known(NEVER, E.INVALID_PRODUCER_EPOCH),
    # KIP-848; in transactions KIP-1319
    (ApiKey.OFFSET_COMMIT, E.UNKNOWN_TOPIC_ID): Known(10, E.UNKNOWN_TOPIC_OR_PARTITION),
    (ApiKey.OFFSET_COMMIT, E.GROUP_ID_NOT_FOUND): Known(9, E.ILLEGAL_GENERATION),
    (ApiKey.TXN_OFFSET_COMMIT, E.UNKNOWN_TOPIC_ID): Known(6, E.UNKNOWN_TOPIC_OR_PARTITION),
    (ApiKey.TXN_OFFSET_COMMIT, E.GROUP_ID_NOT_FOUND): Known(6, E.ILLEGAL_GENERATION),
    (ApiKey.TXN_OFFSET_COMMIT, E.STALE_MEMBER_EPOCH): Known(6, E.ILLEGAL_GENERATION),
    # KIP-890
    (ApiKey.INIT_PRODUCER_ID, E.TRANSACTION_ABORTABLE): Known(5, E.INVALID_TXN_STATE),
    (ApiKey.ADD_PARTITIONS_TO_TXN, E.TRANSACTION_ABORTABLE): Known(5, E.INVALID_TXN_STATE),
    (ApiKey.ADD_OFFSETS_TO_TXN, E.TRANSACTION_ABORTABLE): Known(4, E.INVALID_TXN_STATE),
    (ApiKey.END_TXN, E.TRANSACTION_ABORTABLE): Known(4, E.INVALID_TXN_STATE),
    (ApiKey.PRODUCE, E.TRANSACTION_ABORTABLE): Known(11, E.INVALID_TXN_STATE),
    (ApiKey.TXN_OFFSET_COMMIT, E.TRANSACTION_ABORTABLE): Known(4, E.INVALID_TXN_STATE),
    (ApiKey.PRODUCE, E.CONCURRENT_TRANSACTIONS): Known(12, E.NOT_ENOUGH_REPLICAS),
    (ApiKey.PRODUCE, E.NETWORK_EXCEPTION): _VERIFYING,
    (ApiKey.PRODUCE, E.COORDINATOR_LOAD_IN_PROGRESS): _VERIFYING,
    (ApiKey.PRODUCE, E.COORDINATOR_NOT_AVAILABLE): _VERIFYING,
    (ApiKey.PRODUCE, E.NOT_COORDINATOR): _VERIFYING,
    # The transaction is ending. A client that joined it by itself does not expect that code here, but tries
    # again after this one, and then learns how the transaction ended. Kafka answers CONCURRENT_TRANSACTIONS.
    (ApiKey.TXN_OFFSET_COMMIT, E.CONCURRENT_TRANSACTIONS): Known(5, E.COORDINATOR_LOAD_IN_PROGRESS),
    # KAFKA-7296: it ends older producers
    (ApiKey.TXN_OFFSET_COMMIT, E.COORDINATOR_LOAD_IN_PROGRESS): Known(2, E.COORDINATOR_NOT_AVAILABLE),
    # KIP-1043
    (ApiKey.DESCRIBE_GROUPS, E.GROUP_ID_NOT_FOUND): Known(6, E.NONE),
}


def for_version(key: ApiKey, version: int, code: E) -> E:
    """The code that a client of this version gets for `code`."""
    known = VERSIONS.get((key, code))
    if known is None or version >= known.since:
        return code
    return for_version(key, version, known.older)
