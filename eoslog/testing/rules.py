"""Faults of requests and answers: rules as data, and the object that carries them out.

A rule counts the requests of one API (or of all), and acts on the nth and, with `times`, on those after it.
The rules of a broker are in its process; `faults.Faults` sends them there.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from eoslog.broker.requests import CloseConnection, Settled
from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.error_places import error_answer
from eoslog.protocol.frames import RequestHeader
from eoslog.testing.disk import DiskRule, FaultyFileSystem, Keep

if TYPE_CHECKING:
    from eoslog.broker.requests import Handler, RequestContext
    from eoslog.protocol.schema import Message

Action = Literal["drop request", "drop answer", "delay request", "delay answer", "answer error"]


def api_named(name: str) -> Api:
    """The API of a name such as "Produce", "InitProducerId", INIT_PRODUCER_ID. Raises ValueError."""
    wanted = name.replace("_", "").lower()
    for api in APIS.values():
        if api.name.lower() == wanted:
            return api
    near = difflib.get_close_matches(wanted, (api.name.lower() for api in APIS.values()), 2, 0.75)
    meant = " or ".join(api.name for close in near for api in APIS.values() if api.name.lower() == close)
    raise ValueError(f"no API is named {name!r}: " + (f"is it {meant}?" if meant else "see docs/apis.md"))


@dataclass(frozen=True)
class FaultRule:
    """One fault of requests. `seconds` is for delays, `code` for errors."""

    number: int
    action: Action
    api: int | None = None  # key; None: every API
    client_id: str | None = None  # None: every client
    nth: int = 1
    times: int = 1  # 0: for ever
    seconds: float = 0.0
    code: int = 0
    cut: bool = True  # a dropped request or answer ends the connection, else it stays open and silent
    carried_out: bool = False  # the request is carried out before its error is answered


@dataclass
class Armed:
    """A rule and its counts."""

    rule: FaultRule
    met: int = 0
    happened: int = 0

    def strikes(self, header: RequestHeader) -> bool:
        """Whether the rule strikes this request. Counts the requests that match."""
        rule = self.rule
        if rule.api not in (None, header.api_key) or rule.client_id not in (None, header.client_id):
            return False
        self.met += 1
        due = self.met >= rule.nth and (not rule.times or self.met < rule.nth + rule.times)
        self.happened += due
        return due


@dataclass
class RequestFaults:
    """The `FaultDecider` of a broker under test. For the event loop's thread only."""

    armed: dict[int, Armed] = field(default_factory=dict)
    _deaf: WeakSet[object] = field(default_factory=WeakSet)  # clients whose requests are ignored from now on
    _mute: WeakSet[object] = field(default_factory=WeakSet)  # clients that get no more answers

    def around(self, client: object, header: RequestHeader, handler: Handler) -> Handler:
        """See `eoslog.broker.network.connection.Faults`."""
        if client in self._deaf:
            return _nothing
        for entry in self.armed.values():
            if entry.strikes(header):
                handler = self._changed(client, entry.rule, handler)
        return _unheard(handler) if client in self._mute else handler

    def _changed(self, client: object, rule: FaultRule, handler: Handler) -> Handler:
        match rule.action:
            case "drop request":
                if not rule.cut:
                    self._deaf.add(client)
                return _cut if rule.cut else _nothing
            case "drop answer":
                if not rule.cut:
                    self._mute.add(client)
                return _cut_after(handler) if rule.cut else handler
            case "delay request":
                return _begun_later(handler, rule.seconds)
            case "delay answer":
                return _answered_later(handler, rule.seconds)
            case "answer error":
                return _with_error(handler, rule)


def _cut(context: RequestContext, request: Message) -> None:
    raise CloseConnection("a fault on demand: the request was dropped")


def _nothing(context: RequestContext, request: Message) -> None:
    """Neither carries out nor answers the request."""


class Wrapped(Settled["Message | None"]):
    """Another settled answer with a change applied; it is abandoned together with that one."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Awaitable[Message | None], change: Callable[[Message | None], Any]) -> None:
        super().__init__(_changed_by(inner, change))
        self._inner = inner

    def abandon(self) -> None:
        """Abandon both: nobody will await this one, nor the one within."""
        super().abandon()
        if isinstance(self._inner, Settled):
            self._inner.abandon()


async def _changed_by(
    inner: Awaitable[Message | None], change: Callable[[Message | None], Any]
) -> Message | None:
    result: Message | None = await change(await inner)
    return result


def _after(handler: Handler, change: Callable[[Message | None], Awaitable[Message | None]]) -> Handler:
    """`handler` with its answer changed. A request that only waits still lets later ones begin."""

    def changed(context: RequestContext, request: Message) -> Awaitable[Message | None]:
        result = handler(context, request)
        if not isinstance(result, Awaitable):
            return Settled(_coroutine(change(result)))
        if isinstance(result, Settled):
            return Wrapped(result, change)
        return _changed_by(result, change)

    return changed


async def _coroutine(awaitable: Awaitable[Message | None]) -> Message | None:
    return await awaitable


def _cut_after(handler: Handler) -> Handler:
    async def cut(answer: Message | None) -> Message | None:
        raise CloseConnection("a fault on demand: the answer was dropped")

    return _after(handler, cut)


def _unheard(handler: Handler) -> Handler:
    async def unheard(answer: Message | None) -> Message | None:
        return None

    return _after(handler, unheard)


def _answered_later(handler: Handler, seconds: float) -> Handler:
    async def later(answer: Message | None) -> Message | None:
        await asyncio.sleep(seconds)
        return answer

    return _after(handler, later)


def _begun_later(handler: Handler, seconds: float) -> Handler:
    """As if the request came later: those behind it on the connection come after it."""

    async def begin(context: RequestContext, request: Message) -> Message | None:
        await asyncio.sleep(seconds)
        result = handler(context, request)
        return await result if isinstance(result, Awaitable) else result

    return begin


def _with_error(handler: Handler, rule: FaultRule) -> Handler:
    def refused(context: RequestContext, request: Message) -> Message | Awaitable[Message | None] | None:
        header = context.header
        answer: Message | None = error_answer(header.api_key, header.api_version, request, rule.code)
        if answer is None:
            name = APIS[ApiKey(header.api_key)].name
            raise CloseConnection(
                f"no answer to this {name} v{header.api_version} can carry error {rule.code}"
            )
        if rule.carried_out:
            return _after(handler, _always(answer))(context, request)
        return answer

    return refused


def _always(answer: Message | None) -> Callable[[Message | None], Awaitable[Message | None]]:
    async def always(real: Message | None) -> Message | None:
        return None if real is None else answer

    return always


def happened(entries: Iterable[Armed]) -> dict[int, int]:
    """How often each rule has acted, by its number."""
    return {entry.rule.number: entry.happened for entry in entries}


# -- the switchboard -------------------------------------------------------------------------------
# The broker's side of faults on demand: carries out what `faults.Faults` sends, in the broker's process.
#
# Commands and answers are plain values, so that they can be sent through a pipe. All calls come from the
# event loop's thread; those about the disk take its lock.


Command = dict[str, Any]


class Switchboard:
    """The faults of one life of a broker."""

    def __init__(self, data: str) -> None:
        """`data`: the broker's data directory."""
        self.fs = FaultyFileSystem(data)
        self.requests = RequestFaults()
        self._full = 0  # the number of the fault that makes the disk full, the last one
        self.cut: Callable[[], int] = lambda: 0
        """Cuts all connections; set once the broker is listening."""

    def carry_out(self, command: Command) -> Any:
        """Carry out `command`. Returns a plain value."""
        what = command["do"]
        return getattr(self, f"_{what}")(**{name: value for name, value in command.items() if name != "do"})

    def _arm(self, **rule: Any) -> None:
        self.requests.armed[rule["number"]] = Armed(FaultRule(**rule))

    def _arm_disk(self, **rule: Any) -> None:
        self.fs.rules[rule["number"]] = DiskRule(**rule)

    def _disarm(self, number: int) -> None:
        self.requests.armed.pop(number, None)
        self.fs.rules.pop(number, None)
        if number == self._full:
            self.fs.full_after(None)

    def _disarm_all(self) -> None:
        self.requests.armed.clear()
        self.fs.rules.clear()
        self.fs.full_after(None)

    def _happened(self, number: int) -> int:
        if number in self.requests.armed:
            return self.requests.armed[number].happened
        if number == self._full:
            return self.fs.refused
        rule = self.fs.rules.get(number)
        return 0 if rule is None else rule.happened

    def _disk_full(self, number: int, size: int) -> None:
        self._full = number
        self.fs.full_after(size)

    def _cut(self) -> int:
        return self.cut()

    def _lose(self, keep: str, seed: int) -> int:
        return self.fs.lose_power(Keep(keep), seed)
