"""DeleteGroups (key 42): delete empty groups with their offsets (KIP-229)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema("DeleteGroupsRequest", "0-2", flexible=2, fields=(F("groups_names", ARRAY(STRING)),))

RESPONSE = Schema(
    "DeleteGroupsResponse",
    "0-2",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("group_id", STRING),
                F("error_code", INT16),
            ),
        ),
    ),
)
