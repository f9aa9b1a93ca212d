"""UpdateFeatures (key 57): change finalized features (KIP-584)."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "UpdateFeaturesRequest",
    "0-2",
    flexible=0,
    fields=(
        F("timeout_ms", INT32, default=60000),
        F(
            "feature_updates",
            ARRAY(
                F("feature", STRING),
                F("max_version_level", INT16),
                F("allow_downgrade", BOOL, "0"),
                F("upgrade_type", INT8, "1+", default=1),
            ),
        ),
        F("validate_only", BOOL, "1+"),
    ),
)

RESPONSE = Schema(
    "UpdateFeaturesResponse",
    "0-2",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "results",
            ARRAY(
                F("feature", STRING),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
            ),
            "0-1",
            ignorable=True,
        ),
    ),
)
