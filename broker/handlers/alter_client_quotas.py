"""AlterClientQuotas (key 49, versions 0-1): limits of users, client ids and addresses (KIP-546).

Limits are producer_byte_rate, consumer_byte_rate, request_percentage and controller_mutation_rate, of an
address connection_creation_rate. They are durable when this is answered, or only checked with validate_only.
Unknown kinds, limits and combinations, values that do not fit, and what is named twice are INVALID_REQUEST;
one entity that is refused does not stop the others.

Left out: controller_mutation_rate and connection_creation_rate are kept and told, but nobody is held to
them; an address is an IP address, host names are not looked up.
"""

from __future__ import annotations

from collections import Counter

from eoslog.broker import quotas
from eoslog.broker.dispatch import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Message

KEY = ApiKey.ALTER_CLIENT_QUOTAS
VERSIONS = (0, 1)


def handle(context: RequestContext, request: Message) -> Message:
    """Change each entity by itself."""
    counts = Counter(_key(entry) for entry in request["entries"])
    answers = []
    for entry in request["entries"]:
        code, message = ErrorCode.NONE, None
        try:
            if counts[_key(entry)] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "this entity is in the request twice")
            _change(context, entry, request["validate_only"])
        except KafkaError as error:
            code, message = error.code, error.message
        answers.append({"error_code": code, "error_message": message, "entity": entry["entity"]})
    return {"entries": answers}


def _key(entry: Message) -> frozenset[tuple[str, str | None]]:
    return frozenset((one["entity_type"], one["entity_name"]) for one in entry["entity"])


def _change(context: RequestContext, entry: Message, validate_only: bool) -> None:
    whose = quotas.entity((one["entity_type"], one["entity_name"]) for one in entry["entity"])
    limits: dict[str, float | None] = {}
    for change in entry["ops"]:
        if change["key"] in limits:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"limit {change['key']} is in the request twice")
        limits[change["key"]] = None if change["remove"] else change["value"]
    room = context.broker.quotas
    room.check(whose, limits) if validate_only else room.change(whose, limits)
