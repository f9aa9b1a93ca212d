"""Imports what the broker's files import late, so that nothing is imported while it serves.

They import it late because commands and tests import those files too, and need neither NumPy nor pyarrow. An
import takes up to half a second, in which no client is served, and it may fail.
"""

from __future__ import annotations

from eoslog.broker.coordinator.groups import subscription_regex
from eoslog.broker.network.dispatch import handlers
from eoslog.protocol import compression
from eoslog.protocol.apis import APIS


def load() -> None:
    """Import all of it. Takes 0.2 s. Raises ImportError."""
    import encodings.utf_16_le  # noqa: F401 (texts of committed offsets, which Kafka counts in these units)
    import json  # noqa: F401 (the log, with log.format=json)
    import shutil  # noqa: F401 (topics that are deleted)

    from eoslog.broker.log.compaction import cleaning_run  # noqa: F401
    from eoslog.protocol import walk  # noqa: F401

    compression.load()
    subscription_regex.load()
    for key in handlers():
        assert APIS[key].request and APIS[key].response  # a module an API
