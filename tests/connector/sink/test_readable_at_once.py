"""Who reads when a write has returned sees all of its rows, of a micro-batch as well: markers are waited for.

Apache Kafka answers EndTxn when the commit is certain and writes the markers afterwards.
"""

import json
from pathlib import Path

from eoslog.client.admin.list_offsets import list_offsets
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.commit.task_reports import Report
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.sink import committer
from tests.connector.sink.test_round_trips import prepare
from tests.connector.stock_kafka import Kafka

TASKS, WRITES, LATEST = 64, 4, -1


def options_of(kafka: Kafka, topic: str, *, stream: bool, **more: str) -> SinkOptions:
    to = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "transactional.id": f"readable-{topic}"}
    return sink_options({**to, **more}, stream=stream)


def hidden(options: SinkOptions, topic: str) -> int:
    """Offsets of the topic's partition that readers of committed rows do not see."""
    cluster, place = shared_cluster(options.client), (topic, 0)
    stable = list_offsets(cluster, {place: LATEST}, committed=True)[place]
    return list_offsets(cluster, {place: LATEST}, committed=False)[place] - stable


def test_of_a_write(kafka: Kafka) -> None:
    topic = kafka.topic()
    options = options_of(kafka, topic, stream=False)
    found = []
    for _ in range(WRITES):
        begun = committer.begin_batch(options)
        assert begun is not None
        cluster = shared_cluster(options.client)
        reports: list[Report | None] = [prepare(cluster, begun, topic, number) for number in range(TASKS)]
        committer.commit_batch(options, reports)
        found.append(hidden(options, topic))
    assert found == [0] * WRITES


def test_of_a_micro_batch(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "readable"}))
    options = options_of(kafka, topic, stream=True, checkpointLocation=str(tmp_path))
    found = []
    for batch_id in range(WRITES):
        (tmp_path / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"in":{{"0":{batch_id}}}}}')
        begun = committer.begin_stream(options)
        assert begun is not None
        cluster = shared_cluster(options.client)
        reports: list[Report | None] = [prepare(cluster, begun, topic, number) for number in range(TASKS)]
        committer.commit_stream(options, reports, batch_id)
        found.append(hidden(options, topic))
        (tmp_path / "commits" / str(batch_id)).write_text("v1\n{}")
    assert found == [0] * WRITES
