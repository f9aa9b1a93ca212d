"""ListConfigResources (key 74): the resources that have configs (KIP-714, KIP-1142)."""

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "ListConfigResourcesRequest", "0-1", flexible=0, fields=(F("resource_types", ARRAY(INT8), "1+"),)
)

RESPONSE = Schema(
    "ListConfigResourcesResponse",
    "0-1",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F(
            "config_resources",
            ARRAY(
                F("resource_name", STRING),
                F("resource_type", INT8, "1+", default=16, ignorable=True),
            ),
        ),
    ),
)
