"""DescribeConfigs (key 32): the configs of topics, brokers and groups, and their sources (KIP-133, 226)."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeConfigsRequest",
    "1-4",
    flexible=4,
    fields=(
        F(
            "resources",
            ARRAY(
                F("resource_type", INT8),
                F("resource_name", STRING),
                F("configuration_keys", ARRAY(STRING), nullable=True),
            ),
        ),
        F("include_synonyms", BOOL),
        F("include_documentation", BOOL, "3+"),
    ),
)

RESPONSE = Schema(
    "DescribeConfigsResponse",
    "1-4",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F("resource_type", INT8),
                F("resource_name", STRING),
                F(
                    "configs",
                    ARRAY(
                        F("name", STRING),
                        F("value", STRING, nullable=True),
                        F("read_only", BOOL),
                        F("config_source", INT8, default=-1, ignorable=True),
                        F("is_sensitive", BOOL),
                        F(
                            "synonyms",
                            ARRAY(
                                F("name", STRING),
                                F("value", STRING, nullable=True),
                                F("source", INT8),
                            ),
                            ignorable=True,
                        ),
                        F("config_type", INT8, "3+", ignorable=True),
                        F("documentation", STRING, "3+", nullable=True, ignorable=True),
                    ),
                ),
            ),
        ),
    ),
)
