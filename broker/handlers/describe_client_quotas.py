"""DescribeClientQuotas (key 48, versions 0-1): the limits of users, client ids and addresses (KIP-546).

A filter has one component a kind at most: a name, the default, or any that is specified; strict leaves out
what has other kinds besides. A kind that is named twice or without a name, or an address beside other kinds,
is INVALID_REQUEST, an unknown kind UNSUPPORTED_VERSION.

Complete.
"""

from __future__ import annotations

from eoslog.broker.dispatch import RequestContext
from eoslog.broker.quotas import CLIENT_ID, IP, USER, Entity
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Message

KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS = (0, 1)

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


def handle(context: RequestContext, request: Message) -> Message:
    """Answer all entities that the filter takes."""
    try:
        wanted = _filter(request["components"])
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "entries": None}
    strict = request["strict"]
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in whose],
            "values": [{"key": limit, "value": value} for limit, value in sorted(limits.items())],
        }
        for whose, limits in context.broker.quotas.all().items()
        if _takes(wanted, strict, whose)
    ]
    return {"error_code": ErrorCode.NONE, "error_message": None, "entries": entries}


def _filter(components: list[Message]) -> dict[str, tuple[int, str | None]]:
    """By kind how its name has to match, and the name. Raises KafkaError."""
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in components:
        kind, how, name = component["entity_type"], component["match_type"], component["match"]
        if not kind or kind in wanted:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"kind {kind!r} is empty or in the filter twice")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"unknown kind {kind!r}")
        if how not in (_EXACT, _DEFAULT, _SPECIFIED) or (how == _EXACT) != (name is not None):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind}: match type {how} does not go with {name!r}")
        wanted[kind] = how, name
    if IP in wanted and len(wanted) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{IP} goes with no other kind")
    return wanted


def _takes(wanted: dict[str, tuple[int, str | None]], strict: bool, whose: Entity) -> bool:
    names = dict(whose)
    if strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (how == _SPECIFIED or names[kind] == name) for kind, (how, name) in wanted.items()
    )
