"""The console's routes: the parameters and the result of each. Everything is JSON except the page itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eoslog.broker.console import groups, messages, topics, transactions
from eoslog.broker.console.broker_access import MOST, BrokerAccess, Caller, PageQuery, offsets
from eoslog.broker.console.messages import FORMS
from eoslog.broker.console.rates import History
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.version import __version__

ISOLATION = {"read_committed": True, "read_uncommitted": False}


class BadRequest(ValueError):
    """A parameter is missing or invalid; the text says which, and what is valid."""


class ReadOnly(Exception):
    """The console changes nothing: it was not started with console.writable."""


@dataclass(frozen=True)
class Site:
    """What the routes need: access to the broker, the history of rates, and whether changes are allowed."""

    inside: BrokerAccess
    history: History
    writable: bool


Parameters = Mapping[str, Any]
"""The texts of a GET's query, or the JSON object of a POST's body."""

Show = Callable[[Site, Caller, Parameters], Awaitable[dict[str, Any]]]


async def _about(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    broker = site.inside.broker
    return {
        "version": __version__,
        "cluster_id": broker.cluster_id,
        "node_id": broker.node_id,
        "user": caller.name,
        "writable": site.writable,
        "rates": await site.inside.may_see_cluster(caller),
    }


async def _topics(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    return await topics.topics(site.inside, caller, _want(given, topics.SORTS))


async def _partitions(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    return await topics.partitions(site.inside, caller, _text(given, "topic"))


async def _messages(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    topic, partition = _text(given, "topic"), _number(given, "partition", 0)
    committed = ISOLATION[_one_of(given, "isolation", tuple(ISOLATION))]
    offset = _number(given, "offset", -1, low=-1)
    time = _number(given, "time", -1, low=-1)
    if time >= 0:
        place = (topic, partition)
        found = await offsets(site.inside, caller, [place], time, committed=committed)
        if place not in found:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{topic}-{partition} has no record so late")
        offset = found[place]
    query = messages.MessageQuery(
        topic, partition, offset, _number(given, "limit", 50, low=1, high=messages.MOST_RECORDS), committed,
        _one_of(given, "as", FORMS), _number(given, "bytes", 1024, low=1, high=messages.MOST_OF_ONE),
    )  # fmt: skip
    return await messages.messages(site.inside, caller, query)


async def _groups(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    return await groups.groups(site.inside, caller, _want(given, groups.SORTS))


async def _group(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    return await groups.group(site.inside, caller, _text(given, "group"))


async def _transactions(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    everything = _one_of(given, "state", ("open", "all")) == "all"
    return await transactions.transactions(
        site.inside, caller, _want(given, transactions.SORTS), everything=everything, writable=site.writable
    )


async def _hanging(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    return await transactions.hanging(site.inside, caller, writable=site.writable)


async def _rates(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    if not await site.inside.may_see_cluster(caller):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "rates need DESCRIBE on the cluster")
    return site.history.rates()


async def _abort(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    _check_writable(site)
    seen = transactions.SeenTransaction(
        _text(given, "transactional_id"), _number(given, "producer_id"), _number(given, "epoch"),
        _number(given, "started_ms", low=-1),
    )  # fmt: skip
    return await transactions.abort_id(site.inside, caller, seen)


async def _abort_hanging(site: Site, caller: Caller, given: Parameters) -> dict[str, Any]:
    _check_writable(site)
    place = _text(given, "topic"), _number(given, "partition")
    return await transactions.abort_place(
        site.inside, caller, *place, _number(given, "producer_id"), _number(given, "start_offset")
    )


LOOKS: dict[str, Show] = {
    "/api/about": _about,
    "/api/topics": _topics,
    "/api/partitions": _partitions,
    "/api/messages": _messages,
    "/api/groups": _groups,
    "/api/group": _group,
    "/api/transactions": _transactions,
    "/api/hanging": _hanging,
    "/api/rates": _rates,
}
"""By GET; nothing changes."""

CHANGES: dict[str, Show] = {"/api/transactions/abort": _abort, "/api/hanging/abort": _abort_hanging}
"""Routes for POST, from our own page only."""


def _check_writable(site: Site) -> None:
    if not site.writable:
        raise ReadOnly(
            "this console is read-only: start the broker with --console-writable to abort from here"
        )


# Parameters


def _want(given: Parameters, sorts: tuple[str, ...]) -> PageQuery:
    return PageQuery(
        str(given.get("after", "")), str(given.get("filter", "")),
        _number(given, "limit", 50, low=1, high=MOST), _one_of(given, "sort", sorts),
        _yes(given, "down"), _yes(given, "fold"), str(given.get("sink", "")),
    )  # fmt: skip


def _yes(given: Parameters, name: str) -> bool:
    return bool(_one_of(given, name, ("no", "yes")) == "yes")


def _text(given: Parameters, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} is missing")
    return value


def _number(
    given: Parameters, name: str, default: int | None = None, *, low: int = 0, high: int = 2**63 - 1
) -> int:
    value = given.get(name, default)
    if isinstance(value, str) and len(value) < 20 and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadRequest(f"{name} must be a whole number from {low} to {high}")
    return value


def _one_of(given: Parameters, name: str, choices: tuple[Any, ...]) -> Any:
    """One of the choices; the first if the parameter is missing."""
    value = given.get(name, choices[0])
    if value not in choices:
        raise BadRequest(f"{name} must be {' or '.join(choices)}")
    return value
