"""An answer that says an error, for any API and version: made from the schemas, as valid as a real one.

Where an API has one error for all of a request, it is told there. Where it has one for each topic,
partition, group or resource, every one that the request names gets the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.fields import Array, Field, Struct
from eoslog.protocol.schema import Message

_ERRORS = ("error_code", "partition_error_code")

# APIs that have both: the error of the whole request says something else than that of its parts.
_BY_PART = frozenset({ApiKey.FETCH, ApiKey.METADATA, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.OFFSET_DELETE})

# Where the parts of an answer stand in the request, unless under the same name. All that are there count;
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
_NAMED_AS = {
    "partition_index": ("partition", "index"),
    "topic_name": ("name",),
    "topic": ("name",),
    "partition_id": ("partition", "index"),
    "user": ("name",),
}


class NoPlaceForAnError(ValueError):
    """The request names nothing that an error could be told about, and the API has no error of its own."""


def error_answer(key: ApiKey, version: int, request: Message, code: int) -> Message | None:
    """The answer with error `code` to a request; None where the request wants none (Produce, acks=0).

    Raises NoPlaceForAnError.
    """
    if key is ApiKey.PRODUCE and request["acks"] == 0:
        return None
    fields = APIS[key].response.struct.fields
    own = [field for field in fields if field.name in _ERRORS and version in field.versions]
    if not own or key in _BY_PART:
        answer = _parts(fields, version, request, code)
        if any(answer.values()):
            return answer
    if not own:
        raise NoPlaceForAnError(
            f"this {APIS[key].name} v{version} names nothing that error {code} could be for"
        )
    return {own[0].name: code}


def _parts(fields: tuple[Field, ...], version: int, asked: Message, code: int) -> Message:
    """The lists of those fields that have errors in their items, an item for each that was asked for."""
    return {
        field.name: [_part(struct, version, item, code) for item in _asked(field.name, asked)]
        for field in fields
        if version in field.versions and (struct := _item(field)) is not None and _has_errors(struct)
    }


def _part(struct: Struct, version: int, asked: Any, code: int) -> Message:
    """One item: its error, and what it is called."""
    fields = [field for field in struct.fields if version in field.versions]
    answer: Message = {field.name: code for field in fields if field.name in _ERRORS}
    names = [field.name for field in fields if field.name not in (*_ERRORS, "error_message")]
    if not isinstance(asked, dict):  # a plain name or number: the first field is for it
        return answer | {names[0]: asked}
    for name in names:
        values = [asked[known] for known in (name, *_NAMED_AS.get(name, ())) if known in asked]
        if values and not isinstance(values[0], list):
            answer[name] = values[0]
    return answer | _parts(struct.fields, version, asked, code)


def _item(field: Field) -> Struct | None:
    """The struct of a list's items, if it is a list of structs."""
    kind = field.type
    return kind.of if isinstance(kind, Array) and isinstance(kind.of, Struct) else None


def _has_errors(struct: Struct) -> bool:
    inner = (_item(field) for field in struct.fields)
    return any(field.name in _ERRORS for field in struct.fields) or any(map(_has_errors, filter(None, inner)))


def _asked(name: str, asked: Message) -> Iterator[Any]:
    for path in (name, *_ASKED_AS.get(name, ())):
        yield from _at(path, asked)


def _at(path: str, asked: Message) -> Iterator[Any]:
    head, _, rest = path.partition(".")
    for item in asked.get(head) or ():
        if rest:
            yield from _at(rest, item)
        else:
            yield item
