"""A Kafka cluster in memory that answers requests as the client sends them, without bytes for the frames.

Transactional ids and groups are those of the commit protocol's model (model_broker.py); here they get topics
with ids, partitions with logs and markers, time-outs by a clock, copies to be restored. A request is one
call of `answer`: body in, body out, as the schemas name the fields.
"""

import copy
import itertools
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from eoslog.connector.commit.commands import NotOffered, Refused, Sealed
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.batch import Buffer, iter_headers, read_header
from eoslog.protocol.decode import decode_batches
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.schema import Message
from tests.connector.commit.model_broker import NEVER_MS, ModelBroker, Open, Transaction, bumped
from tests.histories.clock import Clock
from tests.histories.shapes import SAVED
from tests.histories.sim_log import COMMITTED, OPEN, PLAIN, STRANGER, Entry, Log

ANCHOR = "__consumer_offsets"
STATE = "__transaction_state"
TV2 = 2
"""From this level of transaction.version on, every end of a transaction raises the epoch."""
Copies = Callable[[str], Any]
"""Which copy of the disk is put back for what has this name."""


@dataclass
class Topic:
    """A topic: created again it has another id."""

    id: bytes
    logs: list[Log]
    internal: bool = False


@dataclass
class Places:
    """Where a transactional id has written in its open transaction; and who opened it, for the judge."""

    logs: set[tuple[str, int]] = field(default_factory=set)
    opener: object = None


class SimCluster(ModelBroker):
    """One broker `host`. `tv`: transaction.version, `keeps`: two-phase commit is offered."""

    def __init__(self, host: str, clock: Clock, *, tv: int = 2, keeps: bool = True) -> None:
        super().__init__(tv, anchors=3, keeps=keeps)
        self.host, self.clock, self.cluster_id = host, clock, f"cluster-{host}"
        self._epochs = itertools.count(1)
        """Leader epochs: every life of a log has one of its own, that of a restored copy too; but all begin
        at 0."""
        self.life = 0
        """Goes up when the broker starts anew: connections of before are gone."""
        self.topics: dict[str, Topic] = {}
        self.beside: list[SimCluster] = []
        """Clusters from which and to which mirrors copy."""
        self.places: dict[str, Places] = {}
        self.opener: Callable[[], object] = lambda: None
        self.requests = 0
        self.may_mark = True
        """Whether its users have the right ClusterAction."""
        self.create(ANCHOR, 3, internal=True)
        self._next_producer = 1000 + 1000 * len(host)
        handlers = {name.upper(): getattr(self, f"_{name}") for name in _SERVED}
        self._handlers: dict[ApiKey, Callable[[Message, int], Message]] = {
            ApiKey[name]: handler for name, handler in handlers.items()
        }

    # -- what people do to it -------------------------------------------------------------------

    def create(self, name: str, partitions: int, internal: bool = False) -> None:
        """A new topic."""
        self.topics[name] = Topic(
            uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.host} {name} {next(self._epochs)}").bytes,
            [Log() for _ in range(partitions)],
            internal,
        )

    def delete(self, name: str) -> None:
        """The topic goes, its open transactions' rows and groups' offsets of it with it."""
        del self.topics[name]
        for group in self.groups.values():
            for place in [p for p in group if p[0] == name]:
                del group[place]
        for txn in self.transactions.values():
            for offsets in txn.offsets.values():
                for place in [p for p in offsets if p[0] == name]:
                    del offsets[place]

    def sealed_for_good(self, name: str) -> bool:
        """Whether a transaction does not time out, and this cluster lets nobody take it over."""
        return not self.keeps and self.transactions[name].timeout_ms == NEVER_MS

    def become(self, tv: int, keeps: bool) -> None:
        """Started anew with another transaction.version, and two-phase commit or not."""
        self.tv, self.keeps = tv, keeps
        self.life += 1

    def partitions(self, name: str) -> int:
        """Of a topic."""
        return len(self.topics[name].logs)

    def take(self, topic: str, partition: int, values: Sequence[str]) -> None:
        """Records of a producer without transactions."""
        column = pa.array([value.encode() for value in values])
        (batch,) = encode_batches(None, column, None, self.clock.ms, codec=0, max_batch_bytes=1 << 20)
        data = b"".join(bytes(part) for part in batch.finish())
        self.topics[topic].logs[partition].append(data, self.clock.ms)

    def stand_open(self, topic: str) -> None:
        """Another application writes to all partitions in a transaction, and does not end it."""
        column = pa.array([b"theirs"])
        for log in self.topics[topic].logs:
            if STRANGER not in log.open:
                (batch,) = encode_batches(None, column, None, self.clock.ms, codec=0, max_batch_bytes=1 << 20)
                parts = batch.finish(STRANGER, 0, log.last_sequence(STRANGER) + 1, True)
                log.append(b"".join(map(bytes, parts)), self.clock.ms)

    def end_strangers(self) -> None:
        """Such transactions are committed."""
        for log in (log for topic in self.topics.values() for log in topic.logs):
            if STRANGER in log.open:
                log.mark(STRANGER, 0, True, self.clock.ms)

    def add_partition(self, name: str) -> None:
        """One more."""
        self.topics[name].logs.append(Log())

    def restart(self) -> None:
        """The broker ends and starts again."""
        self.life += 1
        for topic in self.topics.values():
            for log in topic.logs:
                log.epoch = next(self._epochs)

    def snapshot(self) -> Any:
        """A copy of its disk."""
        self.settle_all()
        logs = {n: Topic(t.id, [log.copy() for log in t.logs], t.internal) for n, t in self.topics.items()}
        places = {n: Places(set(p.logs), p.opener) for n, p in self.places.items()}
        return logs, places, copy.deepcopy((self.transactions, self.groups, self._next_producer, self.held))

    def restore(self, disk: Any) -> None:
        """Started on such a copy. What is open in it nobody has opened who lives."""
        logs, places, rest = disk
        self.topics = {n: Topic(t.id, [g.copy() for g in t.logs], t.internal) for n, t in logs.items()}
        self.places = {n: Places(set(p.logs)) for n, p in places.items()}
        self.transactions, self.groups, self._next_producer, self.held = copy.deepcopy(rest)
        self.restart()

    def put_back(self, transactions: Any, groups: Any, logs: Any, topic: str) -> None:
        """See ground.Cluster."""
        self.put_back_apart(lambda _: transactions, lambda _: groups, lambda _: logs, topic)

    def put_back_apart(self, transactions: Copies, groups: Copies, logs: Copies, topic: str) -> None:
        """The same, with a copy for each transactional id and each group, which are in partitions of their
        own, and for each of the topic's partitions, by its number."""
        opened = {name: (transactions(name)[2][0], transactions(name)[1]) for name in self.transactions}
        known = {name: (disk[name], at.get(name)) for name, (disk, at) in opened.items() if name in disk}
        pending = {group: groups(group)[2] for group in self.groups}
        stored = {group: disk[1][group] for group, disk in pending.items() if group in disk[1]}
        held = {group: disk[3][group] for group, disk in pending.items() if group in disk[3]}
        rest = {name: txn for name, (txn, _) in known.items()}, stored, self._next_producer, held
        self.restore((self.topics, {name: at for name, (_, at) in known.items() if at is not None}, rest))
        for txn in self.transactions.values():
            txn.offsets = {}
        for group, disk in pending.items():
            self._leave_pending(group, {n: txn for n, txn in disk[0].items() if group in txn.offsets})
        copies = [logs(str(number))[0][topic].logs for number in range(self.partitions(topic))]
        self.cut(topic, [found[number] for number, found in enumerate(copies)])

    def _leave_pending(self, group: str, opened: Mapping[str, Transaction]) -> None:
        """A group's offsets are those of transactions that were open in its copy."""
        for name, txn in opened.items():
            now, identity, offsets = self.transactions.get(name), txn.current, dict(txn.offsets[group])
            if now is not None and now.state == "Ongoing" and now.current == identity:
                now.offsets[group] = offsets
                continue
            after = identity if self.tv < TV2 else bumped(identity)
            ended = now is not None and (now.state, now.identity) == ("CompleteCommit", after)
            self.held[group] = Open(name, identity, ended, offsets)  # who has them does not come back

    def logs_of(self, name: str) -> list[Log]:
        """A copy of a topic's logs."""
        return [log.copy() for log in self.topics[name].logs]

    def cut(self, name: str, copies: list[Log]) -> None:
        """A topic's logs go back to an older copy, as by an unclean election."""
        if len(copies) > len(self.topics[name].logs):
            return
        self.topics[name].logs[: len(copies)] = [log.copy() for log in copies]
        for log in self.topics[name].logs:
            log.epoch = next(self._epochs)
        self.life += 1

    def places_of(self, group: str, *, noted: bool = False) -> list[tuple[str, int]]:
        """See ground.Cluster."""
        held = {at: stored for at, stored in self.groups.get(group, {}).items() if stored[1] or not noted}
        return [(t, n) for t, n in held if t in self.topics and t != ANCHOR]

    def commit_by_hand(self, group: str, topic: str, partition: int, offset: int) -> None:
        """A consumer of the group, or an operator, commits an offset."""
        self.groups.setdefault(group, {})[topic, partition] = offset, ""

    def end_of(self, topic: str, partition: int) -> int:
        """Where a partition ends."""
        return self.topics[topic].logs[partition].end

    def forget(self, *, ids: bool, groups: bool, rows: Iterable[str] = ()) -> None:
        """Transactional ids and groups that nobody has used for long are gone, and what the topics `rows`
        hold. Their readers have had that, so seen() tells it still."""
        self.settle_all()
        for log in [log for topic in rows if topic in self.topics for log in self.topics[topic].logs]:
            log.start = log.stable
        if ids:
            self.transactions = {n: t for n, t in self.transactions.items() if t.state == "Ongoing"}
        if groups:
            self.groups.clear()

    def empty(self, topic: str) -> None:
        """All records are deleted. Those of transactions that have ended their readers have had."""
        self.settle_all()
        for log in self.topics[topic].logs:
            log.start, log.entries = log.end, [e for e in log.entries if e.state != OPEN]

    def compact(self, topic: str, keep: int, markers: bool) -> None:
        """See ground.Cluster."""
        self.settle_all()
        for log in self.topics[topic].logs:
            log.compact(keep, markers)

    def end_held(self) -> bool:
        """See ground.Cluster."""
        held = dict(self.held)
        for group, found in held.items():
            self._release(group, found.committed)
        return bool(held)

    def mark(self, place: tuple[str, int], writer: ProducerIdentity, commit: bool) -> bool:
        """See ground.Cluster."""
        log = self.topics[place[0]].logs[place[1]]
        is_open = log.open.get(writer.producer_id, (0, -1))[1] == writer.epoch
        if is_open:
            log.mark(*writer, commit, self.clock.ms)
        return is_open

    def terminate(self, name: str) -> bool:
        """Abort what a transactional id has open, whoever holds it (forceTerminateTransaction)."""
        txn = self.transactions.get(name)
        if txn is None or txn.state != "Ongoing":
            return False
        self._fence(txn)
        return True

    def tick(self) -> None:
        """Transactions whose time is over are aborted."""
        now = self.clock.ms
        for txn in self.transactions.values():
            if txn.state == "Ongoing" and txn.timeout_ms != NEVER_MS and txn.start_ms + txn.timeout_ms < now:
                self._fence(txn)

    def plain(self, topic: str, below: Mapping[str, int] | None = None) -> list[str]:
        """A source's records; those of each partition that lie before an offset."""
        found: list[str] = []
        for number, log in enumerate(self.topics[topic].logs):
            bound = log.end if below is None else below.get(str(number), 0)
            for entry in log.ranges(PLAIN):
                if entry.base < bound:
                    found += values([entry])[: bound - entry.base]
        return found

    def written(self, topic: str) -> list[str]:
        """Rows that are committed or may still be. What a mirror has copied counts where it was written, here
        or beside."""
        logs = [log for one in (self, *self.beside) if topic in one.topics for log in one.topics[topic].logs]
        return [v for log in logs for v in values(log.written_here(COMMITTED, PLAIN, OPEN))]

    def seen(self, topic: str, partition: int | None = None) -> list[str]:
        """What a read_committed reader gets, of one partition or of all, up to the last stable offset; and of
        all clusters, as written()."""
        logs = [log for one in (self, *self.beside) if topic in one.topics for log in one.topics[topic].logs]
        logs = logs if partition is None else [logs[partition]]
        return [
            v for g in logs for v in values(e for e in g.written_here(COMMITTED, PLAIN) if e.base < g.stable)
        ]

    def held_open(self) -> Iterator[tuple[str, object]]:
        """Transactional ids with an open transaction, and who opened each."""
        for name, txn in self.transactions.items():
            if txn.state == "Ongoing":
                yield name, self._at(name).opener

    # -- the model's broker, with logs ----------------------------------------------------------

    def _at(self, name: str) -> Places:
        return self.places.setdefault(name, Places())

    def _enter(self, name: str, identity: ProducerIdentity) -> Refused | None:
        self.now_ms = self.clock.ms
        fresh = name in self.transactions and self.transactions[name].state != "Ongoing"
        problem = super()._enter(name, identity)
        if problem is None and fresh:
            self.places[name] = Places(set(), self.opener())
        return problem

    def _settle(self, txn: Transaction) -> None:
        if txn.state.startswith("Prepare"):
            name = next(name for name, t in self.transactions.items() if t is txn)
            wrote = txn.wrote or txn.identity
            for topic, number in sorted(self._at(name).logs):
                if topic in self.topics and number < len(self.topics[topic].logs):
                    log = self.topics[topic].logs[number]
                    log.mark(wrote.producer_id, wrote.epoch, txn.state == "PrepareCommit", self.clock.ms)
            self._at(name).logs.clear()
        super()._settle(txn)

    # -- requests -------------------------------------------------------------------------------

    def versions(self) -> dict[int, tuple[int, int]]:
        """What it serves."""
        return {int(key): (api.min_version, api.max_version) for key, api in APIS.items()}

    def answer(self, api: ApiKey, body: Message, version: int) -> Message:
        """One request."""
        self.requests += 1
        self.now_ms = self.clock.ms
        return self._handlers[api](body, version)

    def _metadata(self, body: Message, version: int) -> Message:
        asked = body["topics"]
        names = list(self.topics) if asked is None else [t["name"] for t in asked]
        if body.get("allow_auto_topic_creation"):
            for name in names:
                if name not in self.topics:
                    self.create(name, 2)
        return {
            "brokers": [{"node_id": 1, "host": self.host, "port": 9092}],
            "cluster_id": self.cluster_id,
            "topics": [self._described(name) for name in names],
        }

    def _described(self, name: str) -> Message:
        topic = self.topics.get(name)
        if topic is None:
            return {"name": name, "error_code": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        parts = [
            {"partition_index": n, "leader_id": 1, "leader_epoch": log.epoch, "error_code": 0}
            for n, log in enumerate(topic.logs)
        ]
        return {
            "name": name, "error_code": 0, "topic_id": topic.id, "is_internal": topic.internal,
            "partitions": parts,
        }  # fmt: skip

    def _find_coordinator(self, body: Message, version: int) -> Message:
        found = {"error_code": 0, "error_message": None, "host": self.host, "port": 9092}
        return {"coordinators": [{**found, "key": key} for key in body["coordinator_keys"]]}

    def _init_producer_id(self, body: Message, version: int) -> Message:
        name = body["transactional_id"]
        if name is None:
            return _identity(self._new_identity())
        if version >= 6 and body.get("enable2_pc"):
            kept = self.keep(name)
            if isinstance(kept, NotOffered):
                return {"error_code": int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)}
            return self._kept(kept)
        current = ProducerIdentity(body.get("producer_id", -1), body.get("producer_epoch", -1))
        opened = name in self.ongoing(name)
        found = self.go_on(name, current) if current.producer_id >= 0 else self.init(name)
        if isinstance(found, Refused) and opened and name not in self.ongoing(name):
            return {"error_code": int(ErrorCode.CONCURRENT_TRANSACTIONS)}  # it is being aborted
        if isinstance(found, Refused):
            return {"error_code": found.code}
        self.transactions[name].timeout_ms = body["transaction_timeout_ms"]
        return _identity(found)

    def _kept(self, kept: Sealed) -> Message:
        wrote = kept.wrote or ProducerIdentity(-1, -1)
        told = {"ongoing_txn_producer_id": wrote.producer_id, "ongoing_txn_producer_epoch": wrote.epoch}
        return {**_identity(kept.holder), **told}

    def _add_partitions_to_txn(self, body: Message, version: int) -> Message:
        name = body["v3_and_below_transactional_id"]
        who = ProducerIdentity(body["v3_and_below_producer_id"], body["v3_and_below_producer_epoch"])
        problem = self._enter(name, who)
        results = []
        for topic in body["v3_and_below_topics"]:
            parts = []
            for number in topic["partitions"]:
                code = problem.code if problem else self._code_of((topic["name"], number))
                if not code:
                    self._at(name).logs.add((topic["name"], number))
                parts.append({"partition_index": number, "partition_error_code": code})
            results.append({"name": topic["name"], "results_by_partition": parts})
        return {"results_by_topic_v3_and_below": results}

    def _add_offsets_to_txn(self, body: Message, version: int) -> Message:
        who = ProducerIdentity(body["producer_id"], body["producer_epoch"])
        problem = self._enter(body["transactional_id"], who)
        return {"error_code": problem.code if problem else 0}

    def _produce(self, body: Message, version: int) -> Message:
        responses = []
        for topic in body["topic_data"]:
            name = topic.get("name") or self._named(topic["topic_id"])
            parts = [self._append(name, part, body["transactional_id"]) for part in topic["partition_data"]]
            named = {key: topic[key] for key in ("name", "topic_id") if key in topic}
            responses.append({**named, "partition_responses": parts})
        return {"responses": responses}

    def _append(self, name: str | None, part: Message, txn: str | None) -> Message:
        number = part["index"]
        records: Any = part["records"]
        data = b"".join(map(bytes, records)) if isinstance(records, list) else bytes(records)
        code, base = int(ErrorCode.UNKNOWN_TOPIC_ID) if name is None else self._code_of((name, number)), -1
        if not code and txn is not None:
            code = self._enlist(txn, (str(name), number), data)
        if not code:
            base = self.topics[str(name)].logs[number].append(data, self.clock.ms)
        return {"index": number, "error_code": code, "base_offset": base, "error_message": None}

    def _enlist(self, txn: str, place: tuple[str, int], data: Buffer) -> int:
        header = read_header(data)
        who = ProducerIdentity(header.producer_id, header.producer_epoch)
        if self.tv < 2:
            found = self.transactions.get(txn)
            if found is None or found.current.producer_id != who.producer_id:
                return int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            if found.current != who:
                return int(ErrorCode.INVALID_PRODUCER_EPOCH)
            enlisted = found.state == "Ongoing" and place in self._at(txn).logs and found.holder is None
            return 0 if enlisted else int(ErrorCode.INVALID_TXN_STATE)
        problem = self._enter(txn, who)
        if problem is not None:
            return problem.code
        self._at(txn).logs.add(place)
        return 0

    def _fetch(self, body: Message, version: int) -> Message:
        responses = []
        for topic in body["topics"]:
            by_id = version >= 13
            name = self._named(topic["topic_id"]) if by_id else topic["topic"]
            parts = [self._read(name, part, by_id, body["isolation_level"]) for part in topic["partitions"]]
            responses.append({**topic, "partitions": parts})
        return {"error_code": 0, "responses": responses}

    def _read(self, name: str | None, part: Message, by_id: bool, committed: int) -> Message:
        number, offset = part["partition"], part["fetch_offset"]
        answer = {
            "partition_index": number, "error_code": 0, "high_watermark": -1, "last_stable_offset": -1,
            "log_start_offset": -1, "aborted_transactions": None, "records": None,
            "preferred_read_replica": -1,
        }  # fmt: skip
        if name is None:
            return {**answer, "error_code": int(ErrorCode.UNKNOWN_TOPIC_ID)}
        code = self._code_of((name, number))
        if code:
            return {**answer, "error_code": code}
        log = self.topics[name].logs[number]
        answer |= {"high_watermark": log.end, "last_stable_offset": log.stable, "log_start_offset": log.start}
        if not log.start <= offset <= log.end:
            return {**answer, "error_code": int(ErrorCode.OFFSET_OUT_OF_RANGE)}
        records, aborted = log.read(offset, log.stable if committed else log.end)
        told = [{"producer_id": who, "first_offset": first} for who, first in aborted]
        if not records:
            self.clock.sleep(0.5)  # it waits for more
        return {**answer, "records": records, "aborted_transactions": told}

    def _list_offsets(self, body: Message, version: int) -> Message:
        def of(name: str, part: Message) -> Message:
            place = (name, part["partition_index"])
            answer = {"partition_index": place[1], "error_code": self._code_of(place), "offset": -1}
            if answer["error_code"]:
                return answer
            log = self.topics[name].logs[place[1]]
            at = part["timestamp"]
            latest = log.stable if body["isolation_level"] else log.end
            offset = {-1: latest, -2: log.start}.get(at, -1) if at < 0 else log.at_time(at)
            return {**answer, "offset": offset, "timestamp": -1, "leader_epoch": log.epoch}

        return _by_topic(body, of)

    def _offset_for_leader_epoch(self, body: Message, version: int) -> Message:
        topics = []
        for topic in body["topics"]:
            parts = []
            for part in topic["partitions"]:
                name, number = topic["topic"], part["partition"]
                code = self._code_of((name, number))
                epoch, end = (-1, -1)
                if not code:
                    epoch, end = self.topics[name].logs[number].end_of_epoch(part["leader_epoch"])
                parts.append(
                    {"partition": number, "error_code": code, "leader_epoch": epoch, "end_offset": end}
                )
            topics.append({"topic": topic["topic"], "partitions": parts})
        return {"topics": topics}

    def _offset_commit(self, body: Message, version: int) -> Message:
        group = self.groups.setdefault(body["group_id"], {})

        def of(name: str, part: Message) -> Message:
            place = (name, part["partition_index"])
            code = self._code_of(place)
            if not code:
                group[place] = _stored(part)
            return {"partition_index": place[1], "error_code": code}

        return _by_topic(body, of)

    def _describe_configs(self, body: Message, version: int) -> Message:
        results = []
        for asked in body["resources"]:
            policy = "compact" if asked["resource_name"] == SAVED else "delete"
            given = {"cleanup.policy": policy, "max.message.bytes": "1048588"}
            configs = [{"name": name, "value": value, "synonyms": []} for name, value in given.items()]
            results.append({
                "error_code": 0, "error_message": None, "resource_type": asked["resource_type"],
                "resource_name": asked["resource_name"],
                "configs": [one for one in configs if one["name"] in (asked["configuration_keys"] or ())],
            })  # fmt: skip
        return {"results": results}

    def _offset_delete(self, body: Message, version: int) -> Message:
        group = self.groups.get(body["group_id"], {})

        def of(name: str, part: Message) -> Message:
            group.pop((name, part["partition_index"]), None)
            return {"partition_index": part["partition_index"], "error_code": 0}

        return {"error_code": 0, **_by_topic(body, of)}

    def _offset_fetch(self, body: Message, version: int) -> Message:
        if "groups" in body:
            asked = body["groups"]
            return {"groups": [{"group_id": g["group_id"], **self._of_group(g, body)} for g in asked]}
        return self._of_group(body, body)

    def _of_group(self, asked: Message, body: Message) -> Message:
        group = asked["group_id"]
        held = self.groups.get(group, {})
        pending = self._pending(group) if body["require_stable"] else set()
        topics: dict[str, list[int]] = {}
        if asked["topics"] is None:
            for topic, number in sorted(held):
                topics.setdefault(topic, []).append(number)
        else:
            topics = {t["name"]: t["partition_indexes"] for t in asked["topics"]}

        def of(name: str, number: int) -> Message:
            place = (name, number)
            unstable = int(ErrorCode.UNSTABLE_OFFSET_COMMIT) if place in pending else 0
            offset, text, epoch = (*held.get(place, (-1, "")), -1)[:3]
            return {
                "partition_index": number, "committed_offset": offset, "metadata": text,
                "committed_leader_epoch": epoch, "error_code": unstable,
            }  # fmt: skip

        found = [{"name": n, "partitions": [of(n, p) for p in parts]} for n, parts in topics.items()]
        return {"error_code": 0, "topics": found}

    def _pending(self, group: str) -> set[tuple[str, int]]:
        """Offsets that an open transaction is about to change."""
        self.settle_all()
        opened = [t.offsets for t in self.transactions.values() if t.state == "Ongoing"]
        orphans = [{group: self.held[group].offsets}] if group in self.held else []
        return {place for offsets in (*opened, *orphans) for place in offsets.get(group, ())}

    def _txn_offset_commit(self, body: Message, version: int) -> Message:
        name, who = body["transactional_id"], ProducerIdentity(body["producer_id"], body["producer_epoch"])
        codes = {(t["name"], p["partition_index"]): 0 for t in body["topics"] for p in t["partitions"]}
        offsets = {
            (t["name"], p["partition_index"]): _stored(p) for t in body["topics"] for p in t["partitions"]
        }
        codes = {place: self._code_of(place) for place in codes}
        right = {place: stored for place, stored in offsets.items() if not codes[place]}
        group = body["group_id"]
        problem = self.stage(name, who, group, {place: stored[:2] for place, stored in right.items()})
        if problem is None:
            self.transactions[name].offsets.setdefault(group, {}).update(right)

        def of(topic: str, part: Message) -> Message:
            code = codes[topic, part["partition_index"]] or (problem.code if problem else 0)
            return {"partition_index": part["partition_index"], "error_code": code}

        return _by_topic(body, of)

    def _end_txn(self, body: Message, version: int) -> Message:
        answer, others = self._ended(body, body["committed"]), body.get("together", ())
        together = [
            {"transactional_id": other["transactional_id"], **self._ended(other, body["committed"])}
            for other in others
        ]
        return answer | {"together": together}

    def _ended(self, named: Message, commit: bool) -> Message:
        who = ProducerIdentity(named["producer_id"], named["producer_epoch"])
        found = self.end(named["transactional_id"], who, commit)
        if isinstance(found, Refused):
            return {"error_code": found.code, "producer_id": -1, "producer_epoch": -1}
        return _identity(found)

    def _describe_transactions(self, body: Message, version: int) -> Message:
        states = []
        for name, found in self.describe(body["transactional_ids"]).items():
            if found is None:
                missing = int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
                states.append({"transactional_id": name, "error_code": missing})
                continue
            states.append({
                "transactional_id": name, "error_code": 0, "transaction_state": found.state,
                "producer_id": found.identity.producer_id, "producer_epoch": found.identity.epoch,
                "transaction_timeout_ms": found.timeout_ms, "transaction_start_time_ms": found.start_ms,
                "topics": [],
            })  # fmt: skip
        return {"transaction_states": states}

    def _list_transactions(self, body: Message, version: int) -> Message:
        wanted = set(body["state_filters"])
        found = [
            {"transactional_id": n, "producer_id": t.identity.producer_id, "transaction_state": t.state}
            for n, t in self.transactions.items()
            if not wanted or t.state in wanted
        ]
        return {"error_code": 0, "unknown_state_filters": [], "transaction_states": found}

    def _describe_producers(self, body: Message, version: int) -> Message:
        def of(name: str, number: int) -> Message:
            place = (name, number)
            code = self._code_of(place)
            log = None if code else self.topics[name].logs[number]
            orphans = self._held_on(number).values() if name == ANCHOR else ()
            held = {orphan.identity.producer_id: (0, orphan.identity.epoch) for orphan in orphans}
            active = [
                {
                    "producer_id": who, "producer_epoch": epoch, "coordinator_epoch": 0,
                    "current_txn_start_offset": first,
                    "last_sequence": log.last_sequence(who) if log and who in log.open else -1,
                }
                for who, (first, epoch) in (log.open | held if log else held).items()
            ]  # fmt: skip
            return {"partition_index": number, "error_code": code, "active_producers": active}

        topics = [
            {"name": t["name"], "partitions": [of(t["name"], p) for p in t["partition_indexes"]]}
            for t in body["topics"]
        ]
        return {"topics": topics}

    def _held_on(self, number: int) -> dict[str, Open]:
        """What is held open on a partition of the groups, by group."""
        parts = self.partitions(ANCHOR)
        return {group: found for group, found in self.held.items() if self._place_of(group) % parts == number}

    def _write_txn_markers(self, body: Message, version: int) -> Message:
        answers = []
        refused = 0 if self.may_mark else int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        for marker in body["markers"]:
            topics = []
            for topic in marker["topics"]:
                for number in () if refused else topic["partition_indexes"]:
                    log = self.topics[topic["name"]].logs[number]
                    commit = marker["transaction_result"]
                    log.mark(marker["producer_id"], marker["producer_epoch"], commit, self.clock.ms)
                    for group, found in self._held_on(number).items() if topic["name"] == ANCHOR else ():
                        if found.identity.producer_id == marker["producer_id"]:
                            self._release(group, commit)
                parts = [{"partition_index": n, "error_code": refused} for n in topic["partition_indexes"]]
                topics.append({"name": topic["name"], "partitions": parts})
            answers.append({"producer_id": marker["producer_id"], "topics": topics})
        return {"markers": answers}

    def _delete_groups(self, body: Message, version: int) -> Message:
        results = []
        for group in body["groups_names"]:
            known = self.groups.pop(group, None) is not None
            code = 0 if known else int(ErrorCode.GROUP_ID_NOT_FOUND)
            results.append({"group_id": group, "error_code": code})
        return {"results": results}

    def _code_of(self, place: tuple[str, int]) -> int:
        topic = self.topics.get(place[0])
        known = topic is not None and 0 <= place[1] < len(topic.logs)
        return 0 if known else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _named(self, number: bytes) -> str | None:
        return next((name for name, topic in self.topics.items() if topic.id == bytes(number)), None)

    def id_of(self, name: str) -> str:
        """A topic's id as tools print it."""
        return urlsafe_b64encode(self.topics[name].id).decode().rstrip("=")


_SERVED = (
    "metadata", "find_coordinator", "init_producer_id", "add_partitions_to_txn", "add_offsets_to_txn",
    "produce", "fetch", "list_offsets", "offset_for_leader_epoch", "offset_commit", "offset_fetch",
    "txn_offset_commit", "end_txn", "describe_transactions", "list_transactions", "describe_producers",
    "write_txn_markers", "delete_groups", "offset_delete", "describe_configs",
)  # fmt: skip


def values(entries: Iterable[Entry]) -> list[str]:
    """The values of records in some batches, in order."""
    data = b"".join(entry.data for entry in entries)
    if not data:
        return []
    return [value.decode() for value in decode_batches(data, list(iter_headers(data))).value.to_pylist()]


def _identity(identity: ProducerIdentity) -> Message:
    return {"error_code": 0, "producer_id": identity.producer_id, "producer_epoch": identity.epoch}


def _stored(part: Message) -> Any:
    """(offset, metadata), and the leader epoch where one was given."""
    epoch = part.get("committed_leader_epoch", -1)
    stored = (part["committed_offset"], part["committed_metadata"] or "")
    return stored if epoch < 0 else (*stored, epoch)


def _by_topic(body: Message, of: Callable[[str, Message], Message]) -> Message:
    topics = [
        {"name": t["name"], "partitions": [of(t["name"], p) for p in t["partitions"]]} for t in body["topics"]
    ]
    return {"topics": topics}
