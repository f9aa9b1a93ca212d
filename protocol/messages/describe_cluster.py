"""DescribeCluster (key 60): the cluster's id, controller and brokers."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeClusterRequest",
    "0-2",
    flexible=0,
    fields=(
        F("include_cluster_authorized_operations", BOOL),
        F("endpoint_type", INT8, "1+", default=1),
        F("include_fenced_brokers", BOOL, "2+"),
    ),
)

RESPONSE = Schema(
    "DescribeClusterResponse",
    "0-2",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True, default=None),
        F("endpoint_type", INT8, "1+", default=1),
        F("cluster_id", STRING),
        F("controller_id", INT32, default=-1),
        F(
            "brokers",
            ARRAY(
                F("broker_id", INT32),
                F("host", STRING),
                F("port", INT32),
                F("rack", STRING, nullable=True, default=None),
                F("is_fenced", BOOL, "2+"),
            ),
        ),
        F("cluster_authorized_operations", INT32, default=-2147483648),
    ),
)
