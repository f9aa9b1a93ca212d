"""The embedded protocol of classic consumers' groups, as far as the broker has to read it."""

from __future__ import annotations

from eoslog.protocol.messages.consumer_protocol import CONSUMER_PROTOCOL_SUBSCRIPTION
from eoslog.protocol.schema import ProtocolError

PROTOCOL_TYPE = "consumer"

_LATEST = 3


def subscribed_topics(data: bytes) -> frozenset[str]:
    """The topics of a ConsumerProtocolSubscription. Raises ProtocolError.

    Newer versions begin with the same fields.
    """
    if len(data) < 2:
        raise ProtocolError(f"a subscription of {len(data)} bytes has no version")
    version = min(int.from_bytes(data[:2], "big", signed=True), _LATEST)
    if version < 0:
        raise ProtocolError(f"a subscription has version {version}")
    body, _ = CONSUMER_PROTOCOL_SUBSCRIPTION.read(version, data, 2)
    return frozenset(body["topics"])
