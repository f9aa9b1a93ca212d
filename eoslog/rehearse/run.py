"""A whole rehearsal, a row at a time, and the removal of what it has made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from eoslog.client.admin import groups, transaction_states, transactions
from eoslog.client.admin.topics import delete_topics
from eoslog.client.admin.transactions import TV2
from eoslog.client.wire.cluster import Cluster, ask_controller
from eoslog.client.wire.retry import check
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.options.rights import GROUP, ID, READ, TOPIC, WRITE, Right
from eoslog.errors import EoslogError
from eoslog.protocol import errors
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import ProtocolError
from eoslog.protocol.typed import CREATE_TOPICS
from eoslog.rehearse import granted, kills, limits
from eoslog.rehearse.limits import UNCLEAN, Query, check_versions
from eoslog.rehearse.probes import (
    EXPIRES,
    LASTS,
    NOT_ALLOWED,
    PROBES,
    REPORTED,
    TIMEOUT_MS,
    TimeOut,
    row,
    row_of,
)
from eoslog.rehearse.work import PARTITIONS, PREFIX, DoesNotHold, Row, ScratchNames, Verdict, Work

if TYPE_CHECKING:
    from eoslog.protocol.typed import CreateTopicsRequestDraft

# -- clean-up --------------------------------------------------------------------------------------
# Removes what a rehearsal has made, and tells what it could not remove. Touches no other name.


_ROUNDS = 3
"""How often topics are looked for: a request to create them may have been on its way."""
_GONE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@dataclass
class CleanUp:
    """What has been removed (by kind), what is left and why, and what is yet to be done."""

    removed: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    ids: int = 0
    """Transactional ids that stay, with nothing open."""
    to_do: list[str] = field(default_factory=lambda: ["open transactions", "topics", "groups"])

    def run(self, cluster: Cluster, names: ScratchNames, topics: Sequence[str]) -> None:
        """Remove all of it. Raises nothing but KeyboardInterrupt: then `to_do` tells what was not begun or
        not finished."""
        steps: dict[str, Callable[[Cluster, ScratchNames, Sequence[str]], None]] = {
            "open transactions": self._end_transactions,
            "groups": self._delete_groups,
            "topics": self._delete_topics,
        }
        for kind in tuple(self.to_do):
            self._tried(f"{kind} {names.name('*')}", partial(steps[kind], cluster, names, topics))
            self.to_do.remove(kind)

    def _tried(self, what: str, attempt: Callable[[], None]) -> bool:
        try:
            attempt()
        except KafkaError as error:
            if error.code in _GONE:
                return False
            self.left.append(f"{what}: {error}")
            return False
        except (EoslogError, ProtocolError) as error:
            self.left.append(f"{what}: {error}")
            return False
        return True

    def _each(self, kind: str, found: Iterable[str], remove: Callable[[str], None]) -> None:
        for name in found:
            if self._tried(f"{kind} {name}", partial(remove, name)):
                self.removed[kind] = self.removed.get(kind, 0) + 1

    def _end_transactions(self, cluster: Cluster, names: ScratchNames, _: Sequence[str]) -> None:
        prefix = names.name("")
        found = [
            one.transactional_id for one in transaction_states.list_transactions(cluster, prefix, ["Ongoing"])
        ]
        self._each("open transaction", map(names.check, found), partial(_abort, cluster))
        self.ids = len(transaction_states.list_transactions(cluster, prefix))

    def _delete_groups(self, cluster: Cluster, names: ScratchNames, _: Sequence[str]) -> None:
        found = [one.group for one in groups.list_groups(cluster) if one.group.startswith(names.name(""))]
        self._each("group", map(names.check, found), partial(groups.delete_group, cluster))

    def _delete_topics(self, cluster: Cluster, names: ScratchNames, topics: Sequence[str]) -> None:
        left: dict[str, str] = {}
        for _ in range(_ROUNDS):
            try:
                found = list(cluster.metadata(topics).topics)
            except (EoslogError, KafkaError, ProtocolError) as error:
                left |= dict.fromkeys(topics, str(error))
                break
            there = [names.check(name) for name in found if name not in left]
            if not there:
                break
            left |= self._delete(cluster, there)
        self.left += [f"topic {name}: {why}" for name, why in left.items()]

    def _delete(self, cluster: Cluster, topics: Sequence[str]) -> dict[str, str]:
        """Delete topics in one request. Returns why some were not."""
        try:
            codes = {done["name"] or "": done["error_code"] for done in delete_topics(cluster, topics)}
        except (EoslogError, KafkaError, ProtocolError) as error:
            return dict.fromkeys(topics, str(error))
        done = [name for name, code in codes.items() if not code]
        self.removed["topic"] = self.removed.get("topic", 0) + len(done)
        failed = {name: KafkaError(code) for name, code in codes.items() if code}
        return {name: str(error) for name, error in failed.items() if error.code not in _GONE}


def _abort(cluster: Cluster, name: str) -> None:
    transactions.init_producer_id(cluster, name, TIMEOUT_MS)


# -- the rehearsal ---------------------------------------------------------------------------------
# A whole rehearsal, a row at a time.


KILLS, CRASH = "kills", "crash"
_WAIT_MS = 30_000


@dataclass
class Rehearsal:
    """One run. `topics`: the user's own, whose retention and rights are looked at; nothing is written there.

    `connect` makes further connections to the cluster, one set for each driver.
    """

    work: Work
    connect: Callable[[], Cluster]
    query: Query
    topics: Sequence[str]
    principal: str
    address: str
    crash: Callable[[], None] | None = None
    """Crashes brokers and starts them again. None: none is crashed."""
    made: list[str] = field(default_factory=list)
    """Scratch topics that may exist."""
    stops: list[str] = field(default_factory=list)
    """Where drivers were killed, once all of them were."""

    def rows(self) -> Iterator[Row]:
        """Rehearse. Raises nothing that a cluster can cause; without any broker there is one row."""
        first = row("API versions", lambda: check_versions(self.work.cluster))
        yield first
        if first.verdict is Verdict.UNKNOWN:
            return
        rights = list(self._rights())
        yield from rights
        if any(found.verdict is Verdict.FAILS for found in rights):
            yield Row("commit protocol", Verdict.UNKNOWN, "not rehearsed: rights are missing, see above")
        else:
            yield from self._protocol()
        yield from self._limits()

    def _protocol(self) -> Iterator[Row]:
        expires = TimeOut(self.work)
        begun = row("time-outs", expires.begin)
        for probe in PROBES:
            found = row(probe.name, partial(probe.look, self.work, probe.word))
            if probe.word == "sealed" and found.verdict is Verdict.HOLDS:
                self.query = self.query._replace(sealed=True)
            if ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.name in found.what:  # or it is switched off
                found = found._replace(do=granted.acl_lines([granted.SEALS], self.principal, self.address))
            yield found
        yield from self._killed()
        if self.crash is not None:
            yield row("a crash of brokers", partial(kills.look, self.work, CRASH, self.crash, self.connect))
        if begun.verdict is Verdict.HOLDS:
            yield from expires.rows()
        else:
            yield begun

    def _killed(self) -> Iterator[Row]:
        name = "a driver killed at every command"
        try:
            done = kills.rehearse(self.work, KILLS, self.connect)
        except REPORTED as error:
            yield row_of(name, error)
            return
        self.stops = done.stops
        what = f"{len(done.stops)} batches, killed before another command in each: every row can be read once"
        yield Row(name, Verdict.HOLDS, what)
        what = (
            f"at most {done.open} open transactions, which held readers back on {done.held} partitions until "
        )
        seen = Verdict.HOLDS if done.open and done.held else Verdict.UNKNOWN
        yield Row("what a killed driver leaves", seen, f"{what}the next one began")

    # -- rights -------------------------------------------------------------------------------

    def _rights(self) -> Iterator[Row]:
        names = self.work.names
        wanted = granted.rights_needed(names, self.work.decisions)
        try:
            self._create_topics()
            found = self._granted()
        except REPORTED as error:
            if isinstance(error, KafkaError) and error.code in NOT_ALLOWED:
                every = (*wanted.query, *wanted.rehearsal, granted.BROKERS_CONFIGS)
                lines = granted.acl_lines(every, self.principal, self.address)
                what = f"scratch topics cannot be created ({error.code.name}); the whole rehearsal needs"
                yield Row("rights", Verdict.FAILS, what, lines)
            else:
                failed = row_of("rights", error)
                yield failed._replace(verdict=Verdict.FAILS)
            return
        asked = dict.fromkeys((TOPIC, GROUP, ID), names.name(KILLS))
        yield from self._told("rights of a query", wanted.query, found, asked, Verdict.FAILS)
        mine = [right for right in wanted.rehearsal if right.operation != granted.CREATE]
        yield from self._told("rights of the rehearsal", mine, found, asked, Verdict.UNKNOWN)
        if list(granted.missing([granted.REPAIRS], found, asked)):
            what = "ClusterAction is missing, or not told: markers that a broker loses need an operator"
            lines = granted.acl_lines([granted.REPAIRS], self.principal, self.address)
            yield Row("right to repair", Verdict.NOTE, what, lines)

    def _told(
        self,
        name: str,
        wanted: Sequence[Right],
        found: granted.Granted,
        asked: dict[str, str],
        verdict: Verdict,
    ) -> Iterator[Row]:
        lacks = list(granted.missing(wanted, found, asked))
        if not lacks:
            yield Row(
                name, Verdict.HOLDS, f"none of {len(wanted)} is missing, on names that begin with {PREFIX}"
            )
            return
        words = ", ".join(f"{right.operation} on {right.resource} {right.name}".strip() for right in lacks)
        yield Row(name, verdict, f"missing: {words}", granted.acl_lines(lacks, self.principal, self.address))

    def _create_topics(self) -> None:
        words = [
            *(probe.word for probe in PROBES),
            KILLS,
            EXPIRES,
            LASTS,
            *([CRASH, f"{CRASH}-load"] if self.crash else []),
        ]
        self.made = [self.work.names.name(word) for word in words]
        body: CreateTopicsRequestDraft = {
            "topics": [
                {"name": name, "num_partitions": len(PARTITIONS), "replication_factor": -1}
                for name in self.made
            ],
            "timeout_ms": _WAIT_MS,
        }
        answer = ask_controller(
            self.work.cluster, CREATE_TOPICS, body, lambda response: response["topics"][0]["error_code"]
        )
        for topic in answer["topics"]:
            if topic["error_code"] == ErrorCode.TOPIC_ALREADY_EXISTS:
                continue  # by an earlier try of the same request: names are unique to this run
            check(topic["error_code"], f"topic {topic['name']}: {topic['error_message'] or 'refused'}")

    def _granted(self) -> granted.Granted:
        cluster, name, decisions = self.work.cluster, self.work.names.name(KILLS), self.work.decisions
        if decisions != ANCHOR and decisions not in cluster.metadata([decisions]).topics:
            raise DoesNotHold(
                f"topic {decisions} (--decision-topic) does not exist, or is not shown",
                f"eoslog topics create {decisions} --partitions 3",
            )
        acquired, timeout_ms = granted.may_acquire(self.work)
        self.work = replace(self.work, timeout_ms=timeout_ms)
        found = {
            (ID, name): acquired,
            (GROUP, name): granted.group_rights(self.work, self.work.names.name("rights")),
            (TOPIC, name): granted.topic_rights(cluster, name),
            (TOPIC, decisions): granted.topic_rights(cluster, decisions),  # the line above makes ANCHOR
            (granted.CLUSTER, ""): granted.cluster_rights(cluster),
        }
        return {resource: bits for resource, bits in found.items() if bits is not None}

    # -- limits -------------------------------------------------------------------------------

    def _limits(self) -> Iterator[Row]:
        cluster = self.work.cluster
        self.query = self.query._replace(verified=cluster.transaction_version() >= TV2)
        yield from self._brokers()
        for topic in limits.INTERNAL:
            yield from _several(f"{UNCLEAN} of {topic}", partial(self._internal, topic))
        if self.made:
            scratch = self.work.names.name(KILLS)
            yield from _several(
                "retention of new topics",
                lambda: limits.limits_of_topic(cluster, scratch, "new topics", self.query),
            )
        for topic in self.topics:
            rights = _several(f"rights on topic {topic}", partial(self._may_use, topic))
            yield from rights
            if rights[0].verdict in (Verdict.FAILS, Verdict.UNKNOWN):
                continue
            yield from _several(
                f"retention of topic {topic}",
                partial(limits.limits_of_topic, cluster, topic, f"topic {topic}", self.query),
            )

    def _internal(self, topic: str) -> Iterator[Row]:
        yield limits.limits_of_internal(self.work.cluster, topic)

    def _brokers(self) -> list[Row]:
        name, cluster = "limits of the brokers", self.work.cluster
        try:
            return list(limits.limits_of_brokers(cluster, self.query))
        except errors.ClusterAuthorizationFailed as error:
            lines = granted.acl_lines([granted.BROKERS_CONFIGS], self.principal, self.address)
            return [row_of(name, error)._replace(do=lines)]
        except REPORTED as error:
            return [row_of(name, error)]

    def _may_use(self, topic: str) -> Iterator[Row]:
        """Whether the user may read or write a topic of its own; nothing is read or written."""
        bits = granted.topic_rights(self.work.cluster, topic)
        if bits is None:
            raise DoesNotHold(f"topic {topic} does not exist, or its broker does not tell who may use it")
        both = [Right(operation, TOPIC, topic, False, "") for operation in (READ, WRITE)]
        lacks = list(granted.missing(both, {(TOPIC, topic): bits}, {}))
        lines = granted.acl_lines(lacks, self.principal, self.address)
        words = {right.operation for right in both} - {right.operation for right in lacks}
        if len(lacks) == len(both):
            yield Row(f"rights on topic {topic}", Verdict.FAILS, "neither Read nor Write", lines)
        else:
            verdict = Verdict.NOTE if lacks else Verdict.HOLDS
            what = " and ".join(sorted(words)) + (", not " + lacks[0].operation if lacks else "")
            yield Row(f"rights on topic {topic}", verdict, what, lines)


def _several(name: str, look: Callable[[], Iterator[Row]]) -> list[Row]:
    """The rows of a check, or the one row that says why there are none."""
    try:
        return list(look())
    except REPORTED as error:
        return [row_of(name, error)]
