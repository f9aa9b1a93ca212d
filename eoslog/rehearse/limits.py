"""How long a cluster keeps what a query needs, and which versions of APIs it serves, compared with the query.

A driver may die between the decision of a batch and the commit of its last transaction. Until it is started
again, the cluster must keep the batch's transactions open (unless they are sealed), the decision (it is kept
as committed offsets), the transactional ids, the epochs of producers, and the rows of the source that were
not read yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from eoslog.client.admin.topics import describe_topics, topic_configs
from eoslog.client.admin.transactions import TV2
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.retry import check
from eoslog.commands.output import several
from eoslog.connector.commit.decide import SAFETY_MS
from eoslog.connector.commit.decision import ANCHOR, METADATA_LIMIT
from eoslog.errors import UnsupportedByBroker
from eoslog.protocol import errors
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.typed import DESCRIBE_CONFIGS
from eoslog.rehearse.work import DoesNotHold, Row, Verdict

if TYPE_CHECKING:
    from eoslog.protocol.typed import DescribeConfigsRequestDraft, DescribeConfigsResponse


Configs = Mapping[str, str]
MAX_TIMEOUT = "transaction.max.timeout.ms"
IDS, PRODUCERS = "transactional.id.expiration.ms", "producer.id.expiration.ms"
UNCLEAN = "unclean.leader.election.enable"
BROKER_CONFIGS = (
    MAX_TIMEOUT,
    IDS,
    PRODUCERS,
    "offsets.retention.minutes",
    "offset.metadata.max.bytes",
    UNCLEAN,
)
TOPIC_CONFIGS = ("retention.ms", "retention.bytes", "cleanup.policy", "min.insync.replicas", UNCLEAN)
_UNLIMITED = -1


class Query(NamedTuple):
    """How long a micro-batch takes, and how long a query may be down, in ms. `sealed`: two-phase commit is
    offered. `verified`: leaders ask the coordinator about each transaction (transaction.version 2, KIP-890).
    """

    batch_ms: int
    downtime_ms: int
    sealed: bool = False
    verified: bool = False

    @property
    def away_ms(self) -> int:
        """How long nothing of the query may be heard."""
        return self.batch_ms + self.downtime_ms

    @property
    def transaction_ms(self) -> int:
        """How long a task's transaction may have to stay open."""
        return (self.batch_ms if self.sealed else self.away_ms) + SAFETY_MS


class _Limit(NamedTuple):
    """A broker's config. `ms`: of one of its units (0: it is no time)."""

    name: str
    ms: int
    why: str


_LIMITS = (
    _Limit(MAX_TIMEOUT, 1, "a task's transaction is aborted after that"),
    _Limit(IDS, 1, "how the last transactions ended is forgotten after that"),
    _Limit(PRODUCERS, 1, "the epochs of aborted transactions are forgotten after that, and rows taken that a "
           "suspended task sends late"),
    _Limit("offsets.retention.minutes", 60_000, "the last decision, and with it the query's place, is "
           "forgotten after that"),
    _Limit("offset.metadata.max.bytes", 0, "a decision is kept as metadata of offsets"),
)  # fmt: skip


def broker_rows(found: Mapping[int, Configs], query: Query) -> Iterator[Row]:
    """A row for each limit, of the broker with the lowest one. `found`: configs by broker."""
    for limit in _LIMITS:
        values, instead = _values(found, limit.name), False
        if not values and limit.name == PRODUCERS:
            values, instead = _values(found, IDS), True
        if not values:
            yield Row(limit.name, Verdict.UNKNOWN, "no broker tells its value")
            continue
        node, value = min(values.items(), key=lambda pair: int(pair[1]))
        row = _compared(limit, node, int(value), query)
        if instead:
            what = f"no broker has it; those of Kafka 3.3 take {IDS}, {row.what}"
            row = row._replace(
                what=what, verdict=Verdict.NOTE if row.verdict is Verdict.HOLDS else row.verdict
            )
        if limit.name == PRODUCERS and query.verified and row.verdict is Verdict.FAILS:
            why = "later, leaders still refuse late rows, as they ask the coordinator (transaction.version 2)"
            row = Row(row.name, Verdict.NOTE, f"{row.what}; {why}")
        yield row


def _values(found: Mapping[int, Configs], name: str) -> dict[int, str]:
    return {node: configs[name] for node, configs in found.items() if configs.get(name)}


def _compared(limit: _Limit, node: int, value: int, query: Query) -> Row:
    if not limit.ms:
        needed, has, unit = METADATA_LIMIT, value, "characters"
    else:
        needed = query.transaction_ms if limit.name == MAX_TIMEOUT else query.away_ms
        has, unit = value * limit.ms, "ms"
    what = f"{value} on broker {node}, {_human(has, unit)}; this query needs {_human(needed, unit)}"
    if has >= needed:
        return Row(limit.name, Verdict.HOLDS, what)
    raised = -(-needed // (limit.ms or 1))
    do = [f"set {limit.name}={raised} or more on every broker: {limit.why}"]
    if limit.name == MAX_TIMEOUT:
        do.append(f"then set kafka.transaction.timeout.ms={raised} on the query's sink")
    return Row(limit.name, Verdict.FAILS, what, tuple(do))


def topic_rows(name: str, label: str, configs: Configs, replicas: int, query: Query) -> Iterator[Row]:
    """Whether a topic keeps its rows for as long as the query may be down, and after the loss of a broker."""
    title, retention = f"retention of {label}", int(configs.get("retention.ms") or _UNLIMITED)
    policy = configs.get("cleanup.policy", "")
    kept = "for ever" if retention == _UNLIMITED else f"for {_human(retention, 'ms')}"
    what = f"rows are kept {kept}; this query needs {_human(query.away_ms, 'ms')}"
    if "delete" in policy and retention != _UNLIMITED and retention < query.away_ms:
        do = f"eoslog topics configs {name} --set retention.ms={query.away_ms}"
        text = "rows that were not read yet are deleted" if name else "give topics a longer retention"
        yield Row(title, Verdict.FAILS, what, (f"{text}: {do}" if name else text,))
    else:
        yield Row(title, Verdict.HOLDS, what)
    if "delete" in policy and int(configs.get("retention.bytes") or _UNLIMITED) != _UNLIMITED:
        size = configs["retention.bytes"]
        yield Row(title, Verdict.NOTE, f"a partition keeps {size} bytes at most: rows may be gone sooner")
    if "compact" in policy:
        yield Row(title, Verdict.NOTE, "compaction removes rows that have the key of a later one")
    yield _replicas(label, replicas, int(configs.get("min.insync.replicas") or 1))
    yield unclean_row(label, name, configs.get(UNCLEAN, ""))


def unclean_row(label: str, name: str, value: str) -> Row:
    """Whether a replica that lacks acknowledged records may lead. `name`: of the topic, if it can be given a
    config of its own."""
    title = f"{UNCLEAN} of {label}"
    if value == "false":
        return Row(title, Verdict.HOLDS, "false: who leads has all that was acknowledged")
    if value != "true":
        return Row(title, Verdict.UNKNOWN, "no broker tells its value")
    do = f"eoslog topics configs {name} --set {UNCLEAN}=false" if name else f"set {UNCLEAN}=false on brokers"
    lost = "a replica may lead that lacks acknowledged rows, decisions or ends of transactions"
    return Row(title, Verdict.FAILS, f"true: {lost}", (do,))


def unclean_by_default(topic: str, values: set[str]) -> Row:
    """The same of a topic that does not show its configs: by the brokers' default."""
    row = unclean_row(topic, "", max(values))
    what = f"{row.what} (by the brokers' default; the topic's own configs are not shown)"
    return row._replace(what=what, verdict=Verdict.NOTE if row.verdict is Verdict.HOLDS else row.verdict)


def _replicas(label: str, replicas: int, least: int) -> Row:
    what = f"{several(replicas, 'replica')}, min.insync.replicas={least}"
    if replicas > 1 and least > 1:
        return Row(f"replicas of {label}", Verdict.HOLDS, what)
    return Row(
        f"replicas of {label}", Verdict.NOTE, f"{what}: what one broker alone has is lost with its disk"
    )


_UNITS: Sequence[tuple[int, str]] = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def _human(value: int, unit: str) -> str:
    """The value in the largest unit that divides it."""
    if unit == "ms":
        for size, name in _UNITS:
            if value and value % size == 0:
                return f"{value // size} {name}"
    return f"{value} {unit}"


NEEDED = {
    ApiKey.METADATA: 0,
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.FETCH: 4,
    ApiKey.PRODUCE: 3,
    ApiKey.INIT_PRODUCER_ID: 3,
    ApiKey.ADD_PARTITIONS_TO_TXN: 0,
    ApiKey.ADD_OFFSETS_TO_TXN: 0,
    ApiKey.TXN_OFFSET_COMMIT: 0,
    ApiKey.END_TXN: 0,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.OFFSET_COMMIT: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
}
"""The lowest version of each API that the sink and the source need."""
_OF_TV2 = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5}
"""The same under transaction.version 2 (KIP-890)."""


def check_versions(cluster: Cluster) -> str:
    """Ask every broker. Raises DoesNotHold if one does not serve what is needed."""
    wrong = []
    brokers, level = cluster.brokers(), cluster.transaction_version()
    for broker in brokers:
        for api, version in (NEEDED | (_OF_TV2 if level >= TV2 else {})).items():
            try:
                broker.pick(api, min_version=version)
            except UnsupportedByBroker as error:
                wrong.append(str(error))
    if wrong:
        raise DoesNotHold(f"{len(wrong)} are missing", *wrong)
    count = f"{len(brokers)} broker{'s serve' if len(brokers) > 1 else ' serves'}"
    return f"{count} all {len(NEEDED)} APIs that a query needs; transaction.version {level}"


_TOPIC, _BROKER = 2, 4
INTERNAL = (ANCHOR, "__transaction_state")
"""Where brokers keep committed offsets, so the decisions, and how transactions ended."""


def limits_of_brokers(cluster: Cluster, query: Query) -> Iterator[Row]:
    """Compare every broker's limits with the query. Raises KafkaError."""
    nodes = cluster.metadata([]).nodes
    yield from broker_rows({node: _broker_configs(cluster, node) for node in nodes}, query)


def limits_of_internal(cluster: Cluster, topic: str) -> Row:
    """Whether an internal topic may lose what it has. Of one whose configs are not shown, the brokers'
    default is told, which it has unless it was given a config of its own. Raises KafkaError."""
    try:
        answer = cluster.ask_any(DESCRIBE_CONFIGS, _asked(_TOPIC, topic, [UNCLEAN]), max_version=4)
        return unclean_row(topic, topic, _values_in(answer).get(UNCLEAN, ""))
    except (errors.TopicAuthorizationFailed, errors.UnknownTopicOrPartition):
        nodes = cluster.metadata([]).nodes
        return unclean_by_default(topic, {_broker_configs(cluster, node).get(UNCLEAN, "") for node in nodes})


def _broker_configs(cluster: Cluster, node: int) -> Configs:
    """One broker's configs, which only it knows."""
    address = cluster.address(node)
    assert address is not None, "it was in the last answer"
    connection = cluster.take(address)
    try:
        return _values_in(connection.call(DESCRIBE_CONFIGS, _asked(_BROKER, str(node), BROKER_CONFIGS)))
    finally:
        cluster.give_back(connection)


def _asked(kind: int, name: str, keys: Sequence[str]) -> DescribeConfigsRequestDraft:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": list(keys)}]}


def _values_in(answer: DescribeConfigsResponse) -> Configs:
    """The configs of the one resource that was asked for. Raises KafkaError."""
    (found,) = answer["results"]
    check(found["error_code"], f"DescribeConfigs of {found['resource_name']}")
    return {config["name"]: config["value"] or "" for config in found["configs"]}


def limits_of_topic(cluster: Cluster, name: str, label: str, query: Query) -> Iterator[Row]:
    """Compare a topic's retention with the query. Raises KafkaError."""
    configs = topic_configs(cluster, [name], TOPIC_CONFIGS)[name]
    yield from topic_rows(
        name if label.startswith("topic ") else "", label, configs, _replicas_of(cluster, name), query
    )


def _replicas_of(cluster: Cluster, name: str) -> int:
    partitions = describe_topics(cluster, [name])[name].partitions.values()
    return min(len(partition["replica_nodes"]) for partition in partitions)
