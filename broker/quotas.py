"""Client quotas (KIP-546, KIP-599): the limits of users, client ids and addresses, kept in `quotas.json`.

An entity is a user, a client id, both together, or an address; None in a name's place is the default of that
kind. Which entity's limit counts for a client, the first that has one (Kafka's order):

    user and client id, user and any client, user, any user and client id, any user and any client,
    any user, client id, any client
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eoslog.broker.log.files import BadFile
from eoslog.broker.ports import FileSystem
from eoslog.broker.stored import StoredJson
from eoslog.protocol.errors import ErrorCode, KafkaError

FILE = "quotas.json"
USER, CLIENT_ID, IP = "user", "client-id", "ip"

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of a kind and a name, sorted by kind."""

PRODUCER_RATE, CONSUMER_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"

_OF_CLIENTS = {
    PRODUCER_RATE: 2**63 - 1,
    CONSUMER_RATE: 2**63 - 1,
    REQUEST_PERCENTAGE: None,
    MUTATION_RATE: None,
}
_OF_ADDRESSES = {CONNECTION_RATE: 2**31 - 1}
"""Limit by name, and its largest value where it is a whole number."""

_NO_LIMITS: dict[str, float] = {}


def entity(pairs: Iterable[tuple[str, str | None]]) -> Entity:
    """An entity of these pairs. Raises KafkaError INVALID_REQUEST for a combination that there is not."""
    named: dict[str, str | None] = {}
    for kind, name in pairs:
        if kind in named:
            raise _refused(f"{kind} is named twice")
        if kind not in (USER, CLIENT_ID, IP):
            raise _refused(f"unknown kind {kind!r}, known are {USER}, {CLIENT_ID} and {IP}")
        if name == "":
            raise _refused(f"the name of a {kind} must not be empty")
        named[kind] = name
    if not named:
        raise _refused("no kind is named")
    if IP in named:
        if len(named) > 1:
            raise _refused(f"{IP} goes with no other kind")
        _check_address(named[IP])
    return tuple(sorted(named.items()))


def check_limit(whose: Entity, limit: str, value: float) -> None:
    """Raise KafkaError INVALID_REQUEST unless an entity may have this limit."""
    known = _OF_ADDRESSES if whose[0][0] == IP else _OF_CLIENTS
    if limit not in known:
        raise _refused(f"unknown limit {limit!r} of {whose[0][0]}, known are {', '.join(known)}")
    highest = known[limit]
    if not 0 < value < float("inf") or (highest is not None and (value > highest or value % 1)):
        wanted = "a number above 0" if highest is None else f"a whole number from 1 to {highest}"
        raise _refused(f"{limit}={value}: must be {wanted}")


class Quotas:
    """All limits that were set."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        """Read what is stored. Raises BadFile, OSError."""
        self._file = StoredJson(fs, data_dir, FILE)
        try:
            self._limits = {
                entity((str(kind), name) for kind, name in one["entity"]): {
                    str(limit): float(value) for limit, value in one["limits"].items()
                }
                for one in self._file.load().get("quotas", [])
            }
        except BadFile:
            raise
        except (KafkaError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._file.bad(error) from error

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return bool(self._limits)

    def all(self) -> Mapping[Entity, Mapping[str, float]]:
        """Every entity with its limits."""
        return self._limits

    def of(self, user: str, client_id: str) -> dict[str, float]:
        """The limits of a client, by name: each from the most special entity that has it."""
        if not self._limits:
            return _NO_LIMITS
        limits: dict[str, float] = {}
        for whose in reversed(_precedence(user, client_id)):
            limits |= self._limits.get(whose, _NO_LIMITS)
        return limits

    def limit_of(self, user: str, client_id: str, limit: str) -> tuple[Entity, float] | None:
        """One limit of a client, and the entity that it was set for; None if it has none."""
        for whose in _precedence(user, client_id):
            value = self._limits.get(whose, _NO_LIMITS).get(limit)
            if value is not None:
                return whose, value
        return None

    def of_address(self, address: str) -> dict[str, float]:
        """The limits of clients from an IP address."""
        return self._limits.get(((IP, None),), _NO_LIMITS) | self._limits.get(((IP, address),), _NO_LIMITS)

    def change(self, whose: Entity, limits: Mapping[str, float | None]) -> None:
        """Set limits of an entity; None takes one away. Raises KafkaError, then nothing is changed."""
        self.check(whose, limits)
        new = {**self._limits.get(whose, _NO_LIMITS), **limits}
        changed = {**self._limits, whose: {name: value for name, value in new.items() if value is not None}}
        if not changed[whose]:
            del changed[whose]
        stored = [{"entity": one, "limits": limits_of_one} for one, limits_of_one in changed.items()]
        self._file.save({"quotas": stored}, "the quotas are as they were")
        self._limits = changed

    def check(self, whose: Entity, limits: Mapping[str, float | None]) -> None:
        """Raise KafkaError INVALID_REQUEST unless these limits could be set."""
        for limit, value in limits.items():
            if value is not None:
                check_limit(whose, limit, value)


def _precedence(user: str, client_id: str) -> list[Entity]:
    """The entities that a client belongs to, the most special first."""
    found: list[Entity] = []
    for name in (user, None):
        found += [((CLIENT_ID, client), (USER, name)) for client in (client_id, None)]
        found.append(((USER, name),))
    return [*found, ((CLIENT_ID, client_id),), ((CLIENT_ID, None),)]


def _check_address(name: str | None) -> None:
    import ipaddress  # few brokers have limits of addresses

    try:
        if name is not None:
            ipaddress.ip_address(name)
    except ValueError:
        raise _refused(f"{name!r} is no IP address") from None


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"quota: {reason}")
