"""Sends many requests together: one for each transactional id, to its coordinator.

A micro-batch ends as many transactions as it has tasks. One after the other, each would cost a round trip.
One coordinator after the other, each would wait for what the brokers before it have to do.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import DELIVERY_TIMEOUT, passes, retrying
from eoslog.errors import BrokerUnreachable, ConnectionLost, EoslogError, RetriesExhausted
from eoslog.protocol.apis import Api
from eoslog.protocol.errors import KafkaError

T = TypeVar("T")
RequestDraft = TypeVar("RequestDraft")
Response = TypeVar("Response")
Shared = TypeVar("Shared")

IN_FLIGHT = 100
"""Requests sent to a coordinator before its answers are read: they are so small that neither side's socket
fills up."""

Together = Callable[[BrokerConnection, Sequence[str]], Mapping[str, Shared]]
"""Sends one request for several transactional ids, if the broker accepts that. Returns the answers it got."""

Request = Callable[[BrokerConnection, str], tuple[RequestDraft, int]]
"""(connection, transactional id) -> body and version; may raise UnsupportedByBroker."""


def at_coordinators(
    cluster: Cluster,
    what: str,
    names: Iterable[str],
    api: Api[Any, RequestDraft, Response, Any],
    request: Request[RequestDraft],
    read: Callable[[str, Response | Shared], T],
    together: Together[Shared] | None = None,
) -> dict[str, T | EoslogError | KafkaError]:
    """Send `request` for each transactional id. Returns what `read` returns for its answer, or raises.
    `together` is tried first; only ids without an answer are then asked one by one.

    Ids whose failure may pass are tried again, for delivery_timeout_ms; the others are not asked a second
    time. Failures are returned; AuthenticationRefused is raised.
    """
    found: dict[str, T | EoslogError | KafkaError] = {}
    wanted = list(names)

    def left() -> list[str]:
        return [name for name in wanted if name not in found]

    def attempt() -> None:
        failures: list[Exception] = []
        alone: dict[BrokerConnection, list[str]] = {}
        for connection, mine in by_connection(cluster.coordinators("transaction", left())).items():
            answers = together(connection, mine) if together is not None else {}
            failures += _take_answers(answers.items(), read, found)
            alone[connection] = [name for name in mine if name not in answers]
        failures += _ask_each(alone, api, request, read, found)
        if failures:
            raise failures[0]

    def forget() -> None:
        cluster.forget_coordinator("transaction", *left())

    named = f"{wanted[0]!r}" if len(wanted) == 1 else f"{len(wanted)} transactional ids"
    try:
        retrying(cluster, f"{what} of {named}", attempt, option=DELIVERY_TIMEOUT, forget=forget)
    except (KafkaError, ConnectionLost, BrokerUnreachable, RetriesExhausted) as error:
        found |= dict.fromkeys(left(), error)
    return found


def _ask_each(
    names: Mapping[BrokerConnection, Sequence[str]],
    api: Api[Any, RequestDraft, Response, Any],
    request: Request[RequestDraft],
    read: Callable[[str, Response], T],
    found: dict[str, T | EoslogError | KafkaError],
) -> list[Exception]:
    """Send to all coordinators, then receive from all, IN_FLIGHT requests a time each. Final results go to
    `found`; failures that may pass are returned. A connection that is lost holds up no other."""
    failures: list[Exception] = []
    try:
        for at in range(0, max(map(len, names.values()), default=0), IN_FLIGHT):
            sent: dict[BrokerConnection, list[str]] = {}
            for connection, mine in names.items():
                with _noting_loss(failures):
                    sent[connection] = _send(connection, mine[at : at + IN_FLIGHT], api, request, found)
            for connection, mine in sent.items():
                with _noting_loss(failures):
                    answers = ((name, connection.answer(api)) for name in mine)
                    failures += _take_answers(answers, read, found)
            names = {connection: mine for connection, mine in names.items() if not connection.closed}
    finally:
        for connection in names:
            if connection.waiting:  # a fault came first: nobody will read these answers
                connection.close()
    return failures


@contextlib.contextmanager
def _noting_loss(failures: list[Exception]) -> Iterator[None]:
    try:
        yield
    except ConnectionLost as error:
        failures.append(error)


def _send(
    connection: BrokerConnection,
    names: Sequence[str],
    api: Api[Any, RequestDraft, Any, Any],
    request: Request[RequestDraft],
    found: dict[str, T | EoslogError | KafkaError],
) -> list[str]:
    """Send for each name; returns the names that will get an answer."""
    sent: list[str] = []
    for name in names:
        try:
            body, version = request(connection, name)
        except EoslogError as error:  # the broker does not serve it: nothing is sent
            found[name] = error
            continue
        connection.ask(api, body, version)
        sent.append(name)
    return sent


def _take_answers(
    answers: Iterable[tuple[str, Response]],
    read: Callable[[str, Response], T],
    found: dict[str, T | EoslogError | KafkaError],
) -> list[Exception]:
    """Put final results into `found`; return the failures that may pass."""
    passing: list[Exception] = []
    for name, answer in answers:
        try:
            found[name] = read(name, answer)
        except KafkaError as error:
            if passes(error):
                passing.append(error)
            else:
                found[name] = error
    return passing


def by_connection(coordinators: Mapping[str, BrokerConnection]) -> dict[BrokerConnection, list[str]]:
    """Transactional ids by the connection to their coordinator."""
    grouped: dict[BrokerConnection, list[str]] = {}
    for name, connection in coordinators.items():
        grouped.setdefault(connection, []).append(name)
    return grouped
