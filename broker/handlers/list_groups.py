"""ListGroups (key 16, versions 0-5): all groups, those with nothing but offsets included.

Filters by state from version 4 (KIP-518) and by type from version 5 (KIP-848), upper or lower case alike.
All groups here are of type "classic". If some of them may not be known the answer is an error and no list.
"""

from __future__ import annotations

from eoslog.broker.dispatch import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.schema import Message

KEY = ApiKey.LIST_GROUPS

_TYPE = "classic"


def handle(context: RequestContext, request: Message) -> Message:
    """List what the filters let through; an empty filter lets all through."""
    states = {state.lower() for state in request["states_filter"]}
    types = {kind.lower() for kind in request["types_filter"]}
    if types and _TYPE not in types:
        return {"groups": []}
    try:
        found = context.broker.groups.list_groups()
    except KafkaError as error:
        return {"error_code": error.code, "groups": []}
    groups = [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type or "",
            "group_state": group.state.value,
            "group_type": _TYPE,
        }
        for group in found
        if not states or group.state.value.lower() in states
    ]
    return {"groups": groups}
