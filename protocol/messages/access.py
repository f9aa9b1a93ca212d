"""Who may do what: ACLs, and users with passwords."""

from eoslog.protocol.fields import ARRAY, BYTES, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

# DescribeAcls (key 29): the ACLs that match a filter.

DESCRIBE_ACLS_REQUEST = Schema(
    "DescribeAclsRequest",
    "1-3",
    flexible=2,
    fields=(
        F("resource_type_filter", INT8),
        F("resource_name_filter", STRING, nullable=True),
        F("pattern_type_filter", INT8, default=3),
        F("principal_filter", STRING, nullable=True),
        F("host_filter", STRING, nullable=True),
        F("operation", INT8),
        F("permission_type", INT8),
    ),
)

DESCRIBE_ACLS_RESPONSE = Schema(
    "DescribeAclsResponse",
    "1-3",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "resources",
            ARRAY(
                F("resource_type", INT8),
                F("resource_name", STRING),
                F("pattern_type", INT8, default=3),
                F(
                    "acls",
                    ARRAY(
                        F("principal", STRING),
                        F("host", STRING),
                        F("operation", INT8),
                        F("permission_type", INT8),
                    ),
                ),
            ),
        ),
    ),
)

# CreateAcls (key 30): add ACLs.

CREATE_ACLS_REQUEST = Schema(
    "CreateAclsRequest",
    "1-3",
    flexible=2,
    fields=(
        F(
            "creations",
            ARRAY(
                F("resource_type", INT8),
                F("resource_name", STRING),
                F("resource_pattern_type", INT8, default=3),
                F("principal", STRING),
                F("host", STRING),
                F("operation", INT8),
                F("permission_type", INT8),
            ),
        ),
    ),
)

CREATE_ACLS_RESPONSE = Schema(
    "CreateAclsResponse",
    "1-3",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
            ),
        ),
    ),
)

# DeleteAcls (key 31): remove the ACLs that match filters.

DELETE_ACLS_REQUEST = Schema(
    "DeleteAclsRequest",
    "1-3",
    flexible=2,
    fields=(
        F(
            "filters",
            ARRAY(
                F("resource_type_filter", INT8),
                F("resource_name_filter", STRING, nullable=True),
                F("pattern_type_filter", INT8, default=3),
                F("principal_filter", STRING, nullable=True),
                F("host_filter", STRING, nullable=True),
                F("operation", INT8),
                F("permission_type", INT8),
            ),
        ),
    ),
)

DELETE_ACLS_RESPONSE = Schema(
    "DeleteAclsResponse",
    "1-3",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "filter_results",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F(
                    "matching_acls",
                    ARRAY(
                        F("error_code", INT16),
                        F("error_message", STRING, nullable=True),
                        F("resource_type", INT8),
                        F("resource_name", STRING),
                        F("pattern_type", INT8, default=3),
                        F("principal", STRING),
                        F("host", STRING),
                        F("operation", INT8),
                        F("permission_type", INT8),
                    ),
                ),
            ),
        ),
    ),
)

# DescribeUserScramCredentials (key 50): which SCRAM credentials users have (KIP-554).

DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST = Schema(
    "DescribeUserScramCredentialsRequest",
    "0",
    flexible=0,
    fields=(
        F(
            "users",
            ARRAY(
                F("name", STRING),
            ),
            nullable=True,
        ),
    ),
)

DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE = Schema(
    "DescribeUserScramCredentialsResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "results",
            ARRAY(
                F("user", STRING),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F(
                    "credential_infos",
                    ARRAY(
                        F("mechanism", INT8),
                        F("iterations", INT32),
                    ),
                ),
            ),
        ),
    ),
)

# AlterUserScramCredentials (key 51): set or remove users' SCRAM credentials (KIP-554).

ALTER_USER_SCRAM_CREDENTIALS_REQUEST = Schema(
    "AlterUserScramCredentialsRequest",
    "0",
    flexible=0,
    fields=(
        F(
            "deletions",
            ARRAY(
                F("name", STRING),
                F("mechanism", INT8),
            ),
        ),
        F(
            "upsertions",
            ARRAY(
                F("name", STRING),
                F("mechanism", INT8),
                F("iterations", INT32),
                F("salt", BYTES),
                F("salted_password", BYTES),
            ),
        ),
    ),
)

ALTER_USER_SCRAM_CREDENTIALS_RESPONSE = Schema(
    "AlterUserScramCredentialsResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("user", STRING),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
            ),
        ),
    ),
)
