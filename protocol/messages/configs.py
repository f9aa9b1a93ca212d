"""Configs of topics, brokers and groups, and quotas of clients."""

from eoslog.protocol.fields import ARRAY, BOOL, FLOAT64, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

# DescribeConfigs (key 32): the configs of topics, brokers and groups, and their sources (KIP-133, 226).

DESCRIBE_CONFIGS_REQUEST = Schema(
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

DESCRIBE_CONFIGS_RESPONSE = Schema(
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

# AlterConfigs (key 33): replace all configs of a resource (KIP-133).

ALTER_CONFIGS_REQUEST = Schema(
    "AlterConfigsRequest",
    "0-2",
    flexible=2,
    fields=(
        F(
            "resources",
            ARRAY(
                F("resource_type", INT8),
                F("resource_name", STRING),
                F(
                    "configs",
                    ARRAY(
                        F("name", STRING),
                        F("value", STRING, nullable=True),
                    ),
                ),
            ),
        ),
        F("validate_only", BOOL),
    ),
)

ALTER_CONFIGS_RESPONSE = Schema(
    "AlterConfigsResponse",
    "0-2",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "responses",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F("resource_type", INT8),
                F("resource_name", STRING),
            ),
        ),
    ),
)

# IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single configs (KIP-339).

INCREMENTAL_ALTER_CONFIGS_REQUEST = Schema(
    "IncrementalAlterConfigsRequest",
    "0-1",
    flexible=1,
    fields=(
        F(
            "resources",
            ARRAY(
                F("resource_type", INT8),
                F("resource_name", STRING),
                F(
                    "configs",
                    ARRAY(
                        F("name", STRING),
                        F("config_operation", INT8),
                        F("value", STRING, nullable=True),
                    ),
                ),
            ),
        ),
        F("validate_only", BOOL),
    ),
)

INCREMENTAL_ALTER_CONFIGS_RESPONSE = Schema(
    "IncrementalAlterConfigsResponse",
    "0-1",
    flexible=1,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "responses",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F("resource_type", INT8),
                F("resource_name", STRING),
            ),
        ),
    ),
)

# DescribeClientQuotas (key 48): the quotas of clients (KIP-546).

DESCRIBE_CLIENT_QUOTAS_REQUEST = Schema(
    "DescribeClientQuotasRequest",
    "0-1",
    flexible=1,
    fields=(
        F(
            "components",
            ARRAY(
                F("entity_type", STRING),
                F("match_type", INT8),
                F("match", STRING, nullable=True),
            ),
        ),
        F("strict", BOOL),
    ),
)

DESCRIBE_CLIENT_QUOTAS_RESPONSE = Schema(
    "DescribeClientQuotasResponse",
    "0-1",
    flexible=1,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "entries",
            ARRAY(
                F(
                    "entity",
                    ARRAY(
                        F("entity_type", STRING),
                        F("entity_name", STRING, nullable=True),
                    ),
                ),
                F(
                    "values",
                    ARRAY(
                        F("key", STRING),
                        F("value", FLOAT64),
                    ),
                ),
            ),
            nullable=True,
        ),
    ),
)

# ListConfigResources (key 74): the resources that have configs (KIP-714, KIP-1142).

LIST_CONFIG_RESOURCES_REQUEST = Schema(
    "ListConfigResourcesRequest", "0-1", flexible=0, fields=(F("resource_types", ARRAY(INT8), "1+"),)
)

LIST_CONFIG_RESOURCES_RESPONSE = Schema(
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
