"""Checks, when a run starts, that a query's state can be saved and found again."""

from eoslog.client.admin.topics import topic_configs
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.spark_logs import Planned, is_eoslog
from eoslog.connector.options.sink_options import StateOptions
from eoslog.errors import OptionError, UnknownTopic

_POLICY = "cleanup.policy"
_CREATE = "make one with cleanup.policy=compact (eoslog topics create)"


def check_state_topic(cluster: Cluster, state: StateOptions, planned: Planned) -> None:
    """Raise OptionError unless the topic keeps the newest record of each key for ever, and Spark can run the
    batches between two saves again. Raises KafkaError, RetriesExhausted."""
    others = [text for text in planned.sources if not is_eoslog(text)]
    if others and state.every > 1:
        raise OptionError(
            f"state.every.batches={state.every}: the query reads from another source than eoslog, which "
            "cannot plan the batches between two saves again as they were: set state.every.batches to 1"
        )
    try:
        cluster.describe(state.topic)
    except UnknownTopic as error:
        raise OptionError(f"state.topic={state.topic}: there is no such topic: {_CREATE}") from error
    policy = topic_configs(cluster, [state.topic], [_POLICY])[state.topic].get(_POLICY, "")
    if policy != "compact":
        raise OptionError(
            f"state.topic={state.topic}: its cleanup.policy is {policy}, so state would expire: {_CREATE}"
        )
