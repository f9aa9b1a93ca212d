"""The log of refusals, in the format of Kafka's authorizer, with a bound on the number of lines."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from eoslog.broker.rules.acls import Client
from eoslog.protocol.acls import AclOperation, ResourceType

logger = logging.getLogger("eoslog.broker.authorizer")

MOST_LOGGED = 20
"""Refusals of one principal that get a line each, in `WINDOW_S`. Further ones are only counted."""
WINDOW_S = 1.0


class Audit:
    """Logs what was refused to which principal; on the event loop."""

    def __init__(self) -> None:
        self._logged: Counter[str] = Counter()  # by principal, in this window
        self._more: Counter[tuple[str, str, int]] = Counter()  # by principal, host and API key

    def denied(
        self, client: Client, key: int, operation: AclOperation, resource: ResourceType, name: str
    ) -> None:
        """Log that a client may not do what it asked for with the API `key`."""
        if not self._logged:
            asyncio.get_running_loop().call_later(WINDOW_S, self._end_window)
        self._logged[client.principal] += 1
        if self._logged[client.principal] > MOST_LOGGED:
            self._more[client.principal, client.host, key] += 1
            return
        logger.info(
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s"
            " for request = %d",
            client.principal, operation.name, client.host, resource.name, name, key,
        )  # fmt: skip

    def _end_window(self) -> None:
        self._logged.clear()
        for (principal, host, key), count in self._more.most_common(MOST_LOGGED):
            logger.info(
                "Principal = %s is Denied %d times more from host = %s for request = %d",
                principal, count, host, key,
            )  # fmt: skip
        self._more.clear()
