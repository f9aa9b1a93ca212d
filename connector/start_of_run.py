"""The start of a sink's run: reads what crosscheck.py compares, and says what it warns of.

Once a run, before its first tasks: two round trips, however many partitions there are (Metadata and
OffsetFetch), besides finding the group's coordinator.
"""

import logging

from eoslog.connector.checkpoint import Checkpoint, Planned
from eoslog.connector.client import offsets as group_offsets
from eoslog.connector.client.cluster import Cluster
from eoslog.connector.client.retry import retrying
from eoslog.connector.commit.messages import Batch, Begun
from eoslog.connector.crosscheck import Committed, Story, check_group_cluster, check_story, read_note
from eoslog.connector.offsets import Offsets
from eoslog.connector.options import SinkOptions

log = logging.getLogger(__name__)


def check_source_cluster(options: SinkOptions, cluster: Cluster, planned: Planned | None) -> None:
    """The source offsets that go to kafka.group.id are of the sink's cluster. Raises WrongCluster."""
    if options.group_id is None or planned is None:
        return
    told = planned.clusters()
    if not told:
        return
    now = retrying(
        cluster,
        "Metadata",
        lambda: cluster.metadata([]).cluster_id,
        timeout_ms=cluster.config.api_timeout_ms,
        option="kafka.default.api.timeout.ms",
        forget=lambda: None,
    )
    check_group_cluster(told, now, options.group_id)


def check_start(
    options: SinkOptions, cluster: Cluster, planned: Planned | None, completed: int | None, begun: Begun
) -> None:
    """Compare what is known; warn. Raises DecisionGone, CheckpointOlder, CheckpointMismatch."""
    if begun.batch is None or planned is None or options.checkpoint_location is None:
        return
    ended = _ended(options.checkpoint_location, planned, begun.batch, begun.decided)
    ends = planned.topic_offsets()
    story = Story(
        sink=begun.sink_id,
        batch=begun.batch,
        ends=ends,
        completed=completed,
        decided=begun.decided,
        ended=ended,
        group=options.group_id,
        committed=_committed(cluster, options.group_id, {**(ended[1] if ended else {}), **ends}),
    )
    for warning in check_story(story):
        log.warning(warning)


def _ended(
    location: str, planned: Planned, batch: Batch, decided: Batch | None
) -> tuple[str, Offsets] | None:
    """The decided batch as the checkpoint has it; Spark keeps the last hundred."""
    if decided is None or decided.query_id != batch.query_id or decided.batch_id > planned.batch_id:
        return None
    found: Planned | None = planned
    if decided.batch_id < planned.batch_id:
        found = Checkpoint.at(location).planned_if_kept(decided.batch_id)
    return None if found is None else (found.digest, found.topic_offsets())


def _committed(cluster: Cluster, group: str | None, wanted: Offsets) -> dict[tuple[str, int], Committed]:
    if group is None or not wanted:
        return {}
    found = group_offsets.fetch_committed(cluster, group, sorted(wanted))
    return {tp: Committed(at, read_note(text)) for tp, (at, text) in found.items() if at >= 0}
