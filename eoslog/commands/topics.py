"""`eoslog topics`: lists, describes, creates, changes and deletes topics of any Kafka cluster."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import click

from eoslog.client.admin.topics import (
    EARLIEST,
    LATEST,
    TOPIC,
    WAIT_MS,
    delete_topics,
    describe_topics,
    list_offsets,
)
from eoslog.client.wire.cluster import ask_controller
from eoslog.client.wire.retry import retrying
from eoslog.commands.output import several
from eoslog.commands.session import CommandSession, cluster_command, pairs
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.typed import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        CreatePartitionsRequestDraft,
        CreatePartitionsResponseResult,
        CreateTopicsRequestConfigDraft,
        CreateTopicsRequestDraft,
        CreateTopicsRequestTopicDraft,
        CreateTopicsResponseTopic,
        DeleteTopicsResponseResponse,
        DescribeConfigsRequestResourceDraft,
        DescribeConfigsResponse,
        DescribeConfigsResponseResult,
        IncrementalAlterConfigsRequestConfigDraft,
        IncrementalAlterConfigsRequestResourceDraft,
        IncrementalAlterConfigsResponse,
        IncrementalAlterConfigsResponseResponse,
    )


_Named: TypeAlias = (
    "CreateTopicsResponseTopic | CreatePartitionsResponseResult | DeleteTopicsResponseResponse"
)

SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
_SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default", 6: "group"}


@click.group()
def command() -> None:
    """List, describe, create, change and delete topics."""


@command.command("list")
@click.option("--internal", is_flag=True, help="The brokers' own topics too.")
@cluster_command
def list_topics(session: CommandSession, internal: bool) -> None:
    """List all topics."""
    rows = [
        {"topic": topic.name, "partitions": len(topic.partitions), "internal": topic.internal}
        for topic in describe_topics(session.cluster).values()
        if internal or not topic.internal
    ]
    session.show(rows, ["topic", "partitions"])


@command.command()
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@cluster_command
def describe(session: CommandSession, names: tuple[str, ...]) -> None:
    """Show leaders, replicas and offsets of topics' partitions; of all topics if none is named."""
    found = describe_topics(session.cluster, names or None)
    everything = [(topic.name, partition) for topic in found.values() for partition in topic.partitions]
    starts = list_offsets(session.cluster, dict.fromkeys(everything, EARLIEST), committed=False)
    ends = list_offsets(session.cluster, dict.fromkeys(everything, LATEST), committed=False)
    stable = list_offsets(session.cluster, dict.fromkeys(everything, LATEST), committed=True)
    rows = [
        {
            "topic": topic.name,
            "topic_id": base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
            "partition": number,
            "leader": part["leader_id"],
            "replicas": part["replica_nodes"],
            "isr": part["isr_nodes"],
            "start": starts[topic.name, number],
            "end": ends[topic.name, number],
            "stable": stable[topic.name, number],
        }
        for topic in found.values()
        for number, part in topic.partitions.items()
    ]
    session.show(rows, ["topic", "partition", "leader", "replicas", "isr", "start", "end", "stable"])


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", type=click.IntRange(1), help="[default: the broker's num.partitions]")
@click.option("--replication-factor", type=click.IntRange(1), help="[default: the broker's]")
@click.option("--config", "settings", multiple=True, metavar="NAME=VALUE", help="A topic config; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists already is no failure.")
@cluster_command
def create(
    session: CommandSession,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create topics."""
    configs: list[CreateTopicsRequestConfigDraft] = [
        {"name": name, "value": value} for name, value in pairs(settings, "--config").items()
    ]
    wanted: list[CreateTopicsRequestTopicDraft] = [
        {
            "name": name,
            "num_partitions": partitions or -1,
            "replication_factor": replication_factor or -1,
            "configs": configs,
        }
        for name in names
    ]
    body: CreateTopicsRequestDraft = {"topics": wanted, "timeout_ms": WAIT_MS}
    answer = ask_controller(session.cluster, CREATE_TOPICS, body, lambda response: _first(response["topics"]))
    there = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else ErrorCode.NONE
    _report(session, answer["topics"], "made", passed_over=there)


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no failure.")
@cluster_command
def delete(session: CommandSession, names: tuple[str, ...], if_exists: bool) -> None:
    """Delete topics and their records."""
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else ErrorCode.NONE
    _report(session, delete_topics(session.cluster, names), "deleted", passed_over=gone)


@command.command()
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", type=click.IntRange(1), required=True, help="The new number of partitions.")
@cluster_command
def alter(session: CommandSession, name: str, partitions: int) -> None:
    """Give a topic more partitions. Keys may then go to other partitions than before."""
    body: CreatePartitionsRequestDraft = {
        "topics": [{"name": name, "count": partitions, "assignments": None}],
        "timeout_ms": WAIT_MS,
    }
    answer = ask_controller(
        session.cluster, CREATE_PARTITIONS, body, lambda response: _first(response["results"])
    )
    _report(session, answer["results"], f"given {partitions} partitions")


@command.command()
@click.argument("name", metavar="TOPIC")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a config; repeatable.")
@click.option("--unset", multiple=True, metavar="NAME", help="Go back to the default; repeatable.")
@click.option("--all", "everything", is_flag=True, help="Show configs that are not set on the topic too.")
@cluster_command
def configs(
    session: CommandSession, name: str, settings: tuple[str, ...], unset: tuple[str, ...], everything: bool
) -> None:
    """Show a topic's configs, or change them."""
    if settings or unset:
        _alter_configs(session, name, pairs(settings, "--set"), unset)
        return
    resource: DescribeConfigsRequestResourceDraft = {
        "resource_type": TOPIC,
        "resource_name": name,
        "configuration_keys": None,
    }

    def attempt() -> DescribeConfigsResponse:
        return session.cluster.any_broker().call(DESCRIBE_CONFIGS, {"resources": [resource]})

    (found,) = retrying(session.cluster, "DescribeConfigs", attempt)["results"]
    _check(found, f"configs of topic {name}")
    rows = [
        {
            "name": config["name"],
            "value": "(hidden)" if config["is_sensitive"] else config["value"],
            "source": _SOURCES.get(config["config_source"], "unknown"),
        }
        for config in sorted(found["configs"], key=lambda config: str(config["name"]))
    ]
    session.show([row for row in rows if everything or row["source"] == "topic"], ["name", "value", "source"])


def _alter_configs(
    session: CommandSession, name: str, settings: dict[str, str], unset: tuple[str, ...]
) -> None:
    changes: list[IncrementalAlterConfigsRequestConfigDraft] = [
        {"name": key, "config_operation": SET, "value": value} for key, value in settings.items()
    ]
    changes += [{"name": key, "config_operation": DELETE, "value": None} for key in unset]
    resource: IncrementalAlterConfigsRequestResourceDraft = {
        "resource_type": TOPIC,
        "resource_name": name,
        "configs": changes,
    }

    def attempt() -> IncrementalAlterConfigsResponse:
        connection = session.cluster.any_broker()
        return connection.call(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})

    (done,) = retrying(session.cluster, "IncrementalAlterConfigs", attempt)["responses"]
    _check(done, f"configs of topic {name}")
    session.say(f"topic {name}: {several(len(changes), 'config')} changed")


def _first(results: Sequence[_Named]) -> int:
    return results[0]["error_code"] if results else 0


def _check(
    result: DescribeConfigsResponseResult | IncrementalAlterConfigsResponseResponse, what: str
) -> None:
    if result["error_code"]:
        raise KafkaError(result["error_code"], f"{what}: {result['error_message'] or 'refused'}")


def _report(
    session: CommandSession, results: Sequence[_Named], done: str, passed_over: ErrorCode = ErrorCode.NONE
) -> None:
    """Print the result for each topic."""
    for result in results:
        code = result["error_code"]
        if not code:
            session.say(f"topic {result['name']}: {done}")
        elif code == passed_over:
            session.say(f"topic {result['name']}: nothing to do")
        else:
            said = result["error_message"]
            session.fail(KafkaError(code, f"topic {result['name']}" + (f": {said}" if said else "")))
