"""Transactional ids as the model cluster keeps them, and what it answers when it refuses."""

from dataclasses import dataclass, field

from eoslog.connector.commit.commands import Refused
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity

TIMEOUT_MS = 900_000
NEVER_MS = 2**31 - 1  # as a transaction is described that does not time out


def refused(code: ErrorCode) -> Refused:
    return Refused(int(code), code.name)


FENCED = refused(ErrorCode.PRODUCER_FENCED)
STALE_EPOCH = refused(ErrorCode.INVALID_PRODUCER_EPOCH)
UNSTABLE = refused(ErrorCode.UNSTABLE_OFFSET_COMMIT)
WRONG_STATE = refused(ErrorCode.INVALID_TXN_STATE)
UNMAPPED = refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@dataclass
class Transaction:
    """One transactional id. `rows` are kept with their place in the log, by identity and sequence number."""

    identity: ProducerIdentity
    state: str = "Empty"
    start_ms: int = -1
    timeout_ms: int = TIMEOUT_MS
    previous: ProducerIdentity | None = None  # before a rotation of the producer id
    raised: ProducerIdentity | None = None  # whose request to go on raised it to the present identity
    holder: ProducerIdentity | None = None  # of a transaction that was kept (KIP-939); `identity` wrote it
    rows: dict[tuple[ProducerIdentity, int], tuple[int, str]] = field(default_factory=dict)
    sequences: set[tuple[ProducerIdentity, int]] = field(default_factory=set)  # as partitions remember them
    offsets: dict[str, dict[tuple[str, int], tuple[int, str]]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)  # added by a request of their own

    wrote: ProducerIdentity | None = None  # of a transaction that was ended: under what it was open
    loses: frozenset[str] = frozenset()  # groups whose marker the node forgets that ends it next

    @property
    def current(self) -> ProducerIdentity:
        """Whom requests must come from."""
        return self.holder or self.identity


@dataclass
class Open:
    """A transaction that has ended and is held open on a group's partition, its marker being lost."""

    name: str
    identity: ProducerIdentity
    committed: bool
    offsets: dict[tuple[str, int], tuple[int, str]]


def bumped(identity: ProducerIdentity) -> ProducerIdentity:
    """Its next epoch."""
    return ProducerIdentity(identity.producer_id, identity.epoch + 1)


def complete(commit: bool) -> str:
    """The state of a transaction that has ended so."""
    return "CompleteCommit" if commit else "CompleteAbort"
