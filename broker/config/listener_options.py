"""The options that a single listener may have for itself: listener.name.NAME.OPTION, or .MECHANISM.OPTION.

Names, types and which are dynamic are those of the base options (KIP-226). A dynamic one is for one broker,
except for the limits of connections, which may be set for all brokers.
"""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from typing import NamedTuple

from eoslog.broker.config.config_def import ConfigRule, rule_of
from eoslog.broker.config.kafka_options import rule_of_kafka
from eoslog.broker.config.network import NetworkOptions
from eoslog.broker.config.security import SecurityOptions

LIMITS = ("max.connections", "max.connection.creation.rate")
STORES = (
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.key.password",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates",
)  # fmt: skip
"""The key store and the trust store."""

_MECHANISM = re.compile(
    r"(?:plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.(sasl\.jaas\.config|connections\.max\.reauth\.ms)"
)


class ListenerOption(NamedTuple):
    """An option of a single listener, by the base option that it takes the place of."""

    base: str
    rule: ConfigRule

    @property
    def limit(self) -> bool:
        """Whether it limits connections."""
        return self.base in LIMITS

    @property
    def dynamic(self) -> bool:
        """Whether it changes while the broker runs."""
        return self.limit or self.base in STORES


def listener_option(name: str) -> ListenerOption | None:
    """The option of that name, without listener.name.NAME; None if a listener has none such."""
    of_mechanism = _MECHANISM.fullmatch(name)
    base = of_mechanism[1] if of_mechanism else name
    rule = _rules().get(base) or (rule_of_kafka(base) if of_mechanism else None)
    return None if rule is None else ListenerOption(base, rule)


@cache
def _rules() -> dict[str, ConfigRule]:
    """By base option."""
    declared = {
        one.metadata["name"]: rule_of(one) for one in (*fields(SecurityOptions), *fields(NetworkOptions))
    }
    wanted = {one.metadata["name"] for one in fields(SecurityOptions)} | set(LIMITS)
    return {name: rule for name, rule in declared.items() if name in wanted}
