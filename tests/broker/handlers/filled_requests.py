"""A request with something in every field, for each API and version."""

import time
from typing import Any

from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.fields import Array, Blob, Fixed, Struct, Text, Type
from eoslog.protocol.plain_records import encode_records


def value(kind: Type, name: str = "") -> Any:
    """Something of this type, one element in each list; names that mean something get what fits them."""
    if name in FITTING:
        return FITTING[name]
    match kind:
        case Array():
            return [value(kind.of)]
        case Blob():
            return RECORDS if kind.is_records else b"bytes"
        case Text():
            return "fuzz"
        case Fixed():
            return kind.default
    raise TypeError(f"{name}: {kind}")


RECORDS = encode_records([(b"k", b"v")], int(time.time() * 1000))
FITTING: dict[str, Any] = {
    "acks": -1, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, "timestamp": -1, "session_epoch": -1,
    "replica_id": -1, "session_timeout_ms": 6000, "member_id": "", "group_instance_id": None,
    "current_leader_epoch": -1, "num_partitions": 1, "replication_factor": 1, "assignments": [],
    "transactional_id_pattern": "f.*", "state_filters": [], "states_filter": [], "types_filter": [],
    "endpoint_type": 1, "key_type": 0, "transaction_timeout_ms": 1000, "producer_id": -1,
    "producer_epoch": -1,
}  # fmt: skip


def bodies() -> list[tuple[Api, int, dict[str, Any]]]:
    """A request with something in every field, for each API and version served."""
    return [
        (api, version, carried(api.request.struct, version))
        for api in sorted(APIS.values(), key=lambda api: api.key == ApiKey.DELETE_TOPICS)
        for version in range(api.min_version, api.max_version + 1)
    ]


def carried(struct: Struct, version: int) -> dict[str, Any]:
    """A value for each field that this version carries."""
    found: dict[str, Any] = {}
    for field in struct.fields:
        if version not in field.versions:
            continue
        match field.type:
            case Struct() as inner:
                found[field.name] = carried(inner, version)
            case Array(of=Struct() as inner) if field.name not in FITTING:
                found[field.name] = [carried(inner, version)]
            case kind:
                found[field.name] = value(kind, field.name)
    return found
