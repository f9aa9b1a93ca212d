"""The APIs that are served: for each key, the handler and the versions that its file declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from eoslog.broker.requests.context import Handler
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.fields import Versions

if TYPE_CHECKING:
    from eoslog.protocol.typed import ApiVersionsResponseApiKeyDraft


@dataclass(frozen=True, slots=True)
class Served:
    """An API as its handler's file declares it."""

    handle: Handler
    versions: Versions
    named_from: int
    """The lowest version that ApiVersions lists."""


@cache
def served() -> Mapping[ApiKey, Served]:
    """The declarations of the handlers' files, by key. Loaded on first use, so that a start is fast."""
    from eoslog.broker import handlers as room

    declared = sorted(room.ALL, key=lambda module: int(module.KEY))
    return {
        module.KEY: Served(
            module.handle, Versions(*module.VERSIONS), getattr(module, "NAMED_FROM", module.VERSIONS[0])
        )
        for module in declared
    }


@cache
def handlers() -> Mapping[ApiKey, Handler]:
    """All handlers, by key."""
    return {key: api.handle for key, api in served().items()}


def announced() -> list[ApiVersionsResponseApiKeyDraft]:
    """The versions of each API as ApiVersions lists them."""
    return [
        {"api_key": key, "min_version": api.named_from, "max_version": api.versions.last}
        for key, api in served().items()
    ]
