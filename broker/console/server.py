"""The console's HTTP server, and the bounds of its connections."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from eoslog.broker.console.broker_access import BrokerAccess, BrokerBusy, Caller
from eoslog.broker.console.login import (
    HEADERS,
    ConsoleLogin,
    NotAuthenticated,
    TooManyTries,
    foreign,
    may_answer_to,
)
from eoslog.broker.console.rates import EVERY, History, sample
from eoslog.broker.console.routes import CHANGES, LOOKS, BadRequest, ReadOnly, Show, Site
from eoslog.broker.console.transactions import TransactionChanged
from eoslog.broker.security.listeners import Listener
from eoslog.broker.security.session import principal_of
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ssl import SSLContext

    from eoslog.broker.core.broker import Broker
    from eoslog.broker.metrics.metrics import Metrics
    from eoslog.broker.security.tls import ListenerTls

# -- connection limits -----------------------------------------------------------------------------
# Bounds on connections: their number, and how long one may wait to send a request or take its answer.


MOST_CONNECTIONS = 64
HANDSHAKE_SECONDS = 10.0
"""For the TLS handshake."""
REQUEST_SECONDS = 30.0
"""From a request's last header to the last byte of its answer."""
SILENT_SECONDS = 30.0
"""From a connection's start, or its last answer, to the next request's last header."""

_SLACK = 5.0  # a slow request is first ended by its own time-out


@dataclass
class _State:
    """The state of a connection, `since` when, and how long it may last."""

    since: float
    most: float
    transport: asyncio.Transport | None = None


class ConnectionWatch:
    """Makes the protocols of new connections, and closes those that hang."""

    def __init__(self, make: Callable[[], asyncio.Protocol], clock: Callable[[], float]) -> None:
        """`make` makes the HTTP server's protocol of one connection."""
        self._make, self._clock = make, clock
        self._known: dict[asyncio.Protocol, _State] = {}

    def __len__(self) -> int:
        return len(self._known)

    def accept(self) -> asyncio.Protocol:
        """The protocol of a new connection; if there are too many, one that closes it."""
        if len(self._known) >= MOST_CONNECTIONS:
            return _Refused()
        protocol = self._make()
        self._known[protocol] = _State(self._clock(), HANDSHAKE_SECONDS + _SLACK)
        return _Counted(protocol, self)

    def made(self, protocol: asyncio.Protocol, transport: asyncio.Transport) -> None:
        """A connection is established, after its TLS handshake if there is one."""
        self._known[protocol] = _State(self._clock(), SILENT_SECONDS, transport)

    def lost(self, protocol: asyncio.Protocol) -> None:
        """A connection has ended."""
        self._known.pop(protocol, None)

    def serves(self, protocol: asyncio.Protocol) -> None:
        """From now on the client waits for us, or takes its answer."""
        self._goes_on(protocol, REQUEST_SECONDS + _SLACK)

    def waits(self, protocol: asyncio.Protocol) -> None:
        """From now on we wait for the client's next request."""
        self._goes_on(protocol, SILENT_SECONDS)

    def _goes_on(self, protocol: asyncio.Protocol, most: float) -> None:
        state = self._known.get(protocol)
        if state is not None:
            state.since, state.most = self._clock(), most

    def cut(self) -> None:
        """Close connections that took too long; those that were never established are only forgotten."""
        now = self._clock()
        for protocol, state in list(self._known.items()):
            if now - state.since > state.most:
                del self._known[protocol]
                if state.transport is not None:
                    state.transport.abort()


class _Refused(asyncio.Protocol):
    """A connection over the limit: closes it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class _Counted(asyncio.Protocol):
    """Passes everything on to the HTTP server's protocol, and reports start and end to the watch."""

    def __init__(self, inner: asyncio.Protocol, watch: ConnectionWatch) -> None:
        self._inner, self._watch = inner, watch

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._watch.made(self._inner, transport)
        self._inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._watch.lost(self._inner)
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


# -- server ----------------------------------------------------------------------------------------
# The console's HTTP server: a thread with its own event loop, so that it does not block the broker's.
#
# Everything that a browser can take is bounded: connections (`watch`), concurrent requests, bytes and seconds
# of each, and the share of the broker's loop (`inside`). Pages of records cost most and are served one at a
# time.


logger = logging.getLogger(__name__)

_requests = logging.getLogger(f"{__name__}.requests")
# A malformed request is its sender's fault: it gets a 400 and no line in the log.
_requests.addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
)

MOST_AT_ONCE = 8
_MOST_BODY = 16 << 10
_FOLLOW_EVERY = 1.0
_STOP_SECONDS = 10.0

FILES = {
    "/": ("console.html", "text/html"),
    "/console.js": ("console.js", "text/javascript"),
    "/console.css": ("console.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class ConsoleAddress:
    """The console's address and its listener. `names`: the host names that a browser may use."""

    bound: socket.socket
    listener: Listener
    tls: ListenerTls | None
    names: frozenset[str]
    strict: bool
    writable: bool


class Console:
    """Runs the console; made, started and closed on the broker's event loop."""

    def __init__(self, place: ConsoleAddress, broker: Broker, metrics: Metrics) -> None:
        self._place, self._broker, self._metrics = place, broker, metrics
        self._broker_loop = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._ready = Event()
        self._failure: Exception | None = None
        self._ended: asyncio.Event
        self._server: asyncio.Server
        self._context: SSLContext | None = None
        self._thread = Thread(target=self._run, name="console", daemon=True)
        self.port: int = place.bound.getsockname()[1]

    async def start(self) -> None:
        """Start to serve. Returns once it does; raises what went wrong."""
        self._thread.start()
        await self._broker_loop.run_in_executor(None, self._ready.wait)
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Stop the server; requests that are still running are cut off."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
        await self._broker_loop.run_in_executor(None, self._thread.join, _STOP_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:
            if self._ready.is_set():
                logger.exception("the console has ended; the broker goes on without it")
            self._failure = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._ended = asyncio.Event()
        inside = BrokerAccess(self._broker, self._broker_loop)
        site = Site(inside, History(), self._place.writable)
        pages = ConsolePages(site, ConsoleLogin(inside, self._place.listener), self._place)
        runner = web.AppRunner(
            pages.app,
            access_log=None,
            logger=_requests,
            handle_signals=False,
            keepalive_timeout=15,
            shutdown_timeout=1.0,
        )
        await runner.setup()
        assert runner.server is not None
        pages.watch = ConnectionWatch(runner.server, self._loop.time)
        await self._listen(pages)
        tasks = [
            self._loop.create_task(_every(EVERY, partial(self._sample, site))),
            self._loop.create_task(_every(_FOLLOW_EVERY, partial(self._follow, pages))),
        ]
        self._ready.set()
        await self._ended.wait()
        self._server.close()
        self._place.bound.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await runner.cleanup()

    async def _listen(self, pages: ConsolePages) -> None:
        """Accept connections, with TLS by the context as it is now."""
        tls: dict[str, Any] = {}
        if self._place.tls is not None:
            self._context = self._place.tls.context
            tls = {"ssl": self._context, "ssl_handshake_timeout": HANDSHAKE_SECONDS}
        sock = self._place.bound.dup()  # the connections that wait there stay when a server is closed
        self._server = await self._loop.create_server(pages.watch.accept, sock=sock, **tls)

    async def _sample(self, site: Site) -> None:
        site.history.add(await site.inside.look(lambda: sample(self._broker, self._metrics)))

    async def _follow(self, pages: ConsolePages) -> None:
        pages.watch.cut()
        if self._place.tls is not None:
            self._place.tls.follow()
            if self._place.tls.context is not self._context:
                self._server.close()
                await self._listen(pages)


async def _every(seconds: float, action: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await action()
        except Exception:
            logger.exception("a periodic task of the console failed; it will run again in %.0f s", seconds)
        await asyncio.sleep(seconds)


class ConsolePages:
    """Handles HTTP requests by the routes."""

    watch: ConnectionWatch

    def __init__(self, site: Site, login: ConsoleLogin, place: ConsoleAddress) -> None:
        self._site, self._login, self._place = site, login, place
        self._room, self._reading = asyncio.Semaphore(MOST_AT_ONCE), asyncio.Semaphore(1)
        self._files = {path: _asset(name, kind) for path, (name, kind) in FILES.items()}
        self.app = web.Application(client_max_size=_MOST_BODY, middlewares=[self._bounded, self._answered])
        self.app.router.add_route("GET", "/{path:.*}", self._get)
        self.app.router.add_route("POST", "/{path:.*}", self._post)

    @web.middleware
    async def _bounded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Bounds the total time: waiting for a place, carrying out, sending."""
        self.watch.serves(request.protocol)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                async with self._room:
                    response = await handler(request)
                for name, value in HEADERS.items():
                    response.headers[name] = value
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPServiceUnavailable from None
        finally:
            self.watch.waits(request.protocol)
        return response

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turns every error into an answer that says what is wrong; our own faults are logged."""
        try:
            names, strict = self._place.names, self._place.strict
            if not may_answer_to(request.headers.get("Host", ""), names, strict=strict):
                return _error(421, "this console does not go by that name (Host)")
            return await handler(request)
        except NotAuthenticated as unknown:
            response = _error(401, str(unknown))
            for challenge in unknown.challenges:
                response.headers.add("WWW-Authenticate", challenge)
            return response
        except TooManyTries as error:
            return _error(429, str(error))
        except KafkaError as error:
            return _error(_status(error.code), str(error))
        except (BadRequest, ReadOnly, TransactionChanged, BrokerBusy) as error:
            return _error(_STATUS[type(error)], str(error))
        except web.HTTPException as error:
            return _error(error.status, error.reason)
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return _error(500, "the console failed; the broker's log says how")

    async def _get(self, request: web.Request) -> web.StreamResponse:
        file = self._files.get(request.path)
        if file is not None:
            if self._login.passwords:
                await self._caller(request)  # makes the browser ask for the password at once
            return web.Response(body=file[0], headers={"Content-Type": file[1]})
        show = LOOKS.get(request.path)
        caller = await self._caller(request)
        if show is None:
            return _error(404, "there is nothing here")
        if request.path == "/api/messages":
            async with self._reading:
                return await self._shown(show, caller, request.query)
        return await self._shown(show, caller, request.query)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        why_not = foreign(request.headers, request.scheme)
        if why_not is not None:
            return _error(403, why_not)
        change, caller = CHANGES.get(request.path), await self._caller(request)
        if change is None:
            return _error(404, "there is nothing to change here")
        try:
            given = await request.json()
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise BadRequest("the body must be a JSON object")
        return await self._shown(change, caller, given)

    async def _shown(self, show: Show, caller: Caller, given: Any) -> web.StreamResponse:
        return web.json_response(await show(self._site, caller, given), dumps=_dumps)

    async def _caller(self, request: web.Request) -> Caller:
        transport, listener = request.transport, self._place.listener
        peer = transport.get_extra_info("peername") if transport is not None else None
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        principal = principal_of(certificate, listener, self._site.inside.broker.config)
        return await self._login.caller(
            request.headers.get("Authorization"), peer[0] if peer else "?", principal
        )


def _asset(name: str, kind: str) -> tuple[bytes, str]:
    data = resources.files("eoslog.broker.console").joinpath("static", name).read_bytes()
    return data, f"{kind}; charset=utf-8"


_dumps = partial(json.dumps, separators=(",", ":"), allow_nan=False)

_STATUS: dict[type[Exception], int] = {
    BadRequest: 400,
    ReadOnly: 403,
    TransactionChanged: 409,
    BrokerBusy: 503,
}

_FORBIDDEN = frozenset({
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
})  # fmt: skip
_MISSING = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_GROUP_ID,
})  # fmt: skip
_CONFLICTS = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS})


def _status(code: ErrorCode) -> int:
    tables: Sequence[tuple[frozenset[ErrorCode], int]] = (
        (_FORBIDDEN, 403),
        (_MISSING, 404),
        (_CONFLICTS, 409),
    )
    return next((status for codes, status in tables if code in codes), 503)


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
