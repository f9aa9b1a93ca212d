"""The task's writer: writes all rows in the task's own transaction, and reports it to the driver.

With exactly_once and at_most_once a task makes no row visible: its transaction stays open until the driver
has decided. A task that fails aborts its transaction. The next begin aborts a killed task's transaction.
"""

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pyarrow as pa

from eoslog.client.admin import transactions
from eoslog.client.admin.topics import topic_configs
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.client.wire.retry import retrying
from eoslog.connector.commit.prepare import Task, judge, participant_name, withdraw_if_late
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.task_reports import Begun, Decided, Empty, Prepared, Report, Stamp
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.options.sink_options import SinkOptions
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink.deadletters import LIMITING, RowValidator, TopicLimits
from eoslog.connector.sink.routing import Router
from eoslog.connector.sink.row_checksum import Tally
from eoslog.connector.sink.task_message import Attempt, TaskMessage
from eoslog.connector.spark.calls import called
from eoslog.connector.spark.pickled_form import FORM
from eoslog.connector.spark.sockets import acknowledging
from eoslog.protocol.producer_identity import ProducerIdentity

logger = logging.getLogger(__name__)


def write_rows(
    options: SinkOptions, begun: Begun | None, attempt: Attempt, rows: Iterator[pa.RecordBatch]
) -> TaskMessage:
    """Write the rows under the guarantee. Raises what the producer, the router or the rules raise."""
    called()
    rows = acknowledging(rows)
    if begun is None:
        _write_plainly(options, attempt, rows)
        return TaskMessage(FORM, None)
    task, stamp = judge(begun, attempt.query_id, attempt.batch_id, attempt.partition)
    stamp = replace(stamp, within=attempt.within, run=attempt.run)
    runs_again = options.state is not None and options.state.every > 1
    named = options.write_token is not None or attempt.within is not None
    compared = options.on_lost is OnLost.REPLAY or named or runs_again
    by_rows = options.topic is None and options.deadletter_topic is None
    tally = Tally(checksum=compared or begun.sums, topics=by_rows and task is Task.PASS_DECIDED)
    rows = _tallied(rows, tally)
    if task is Task.WRITE:
        return TaskMessage(FORM, _prepare(options, stamp, attempt, rows, tally))
    for _ in rows:  # Spark expects a task to take all of its rows
        continue
    if task is Task.DROP:
        return TaskMessage(FORM, Empty(stamp, attempt.partition))
    topics = tuple(sorted(tally.topics or ()))
    return TaskMessage(FORM, Decided(stamp, attempt.partition, tally.rows, tally.checksum, topics))


def _tallied(rows: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        tally.add(batch)
        yield batch


def _prepare(
    options: SinkOptions, stamp: Stamp, attempt: Attempt, rows: Iterator[pa.RecordBatch], tally: Tally
) -> Report:
    first = next((batch for batch in rows if len(batch)), None)
    if first is None:
        return Empty(stamp, attempt.partition)
    cluster = shared_cluster(options.client)
    name = participant_name(stamp, *_next_slot(stamp))
    identity = transactions.init_producer_id(cluster, name, options.transaction_timeout_ms)
    try:
        with Producer(cluster, identity=identity, transactional_id=name) as producer:
            send = _sender(options, cluster, producer, attempt.partition, tally)
            send(first)
            for batch in rows:
                send(batch)
            producer.flush()
    except BaseException as error:
        _give_up(cluster, name, identity, error)
        raise
    participant = Participant(name, identity)
    late = Runner(cluster, options.transaction_timeout_ms).run(withdraw_if_late(stamp, participant))
    if late is not None:
        logger.info("task of partition %d: %s", attempt.partition, late)
    written = tuple(sorted(producer.partitions))
    ids = tuple(sorted((topic, number) for topic, number in producer.topic_ids.items() if number))
    last = tuple(producer.last_rows.get(place, (-1, -1)) for place in written)
    first = tuple(producer.first_rows.get(place, -1) for place in written)
    ends = tuple(map(producer.last_sequence, written))
    results = (tally.rows, written, tally.checksum, ids, producer.bytes, last, first, ends, tally.dead)
    return Prepared(stamp, attempt.partition, participant, *results)


def _give_up(cluster: Cluster, name: str, identity: ProducerIdentity, error: BaseException) -> None:
    """Abort the task's own transaction, so that it does not hold back readers until its time-out."""
    try:
        transactions.end_txn(cluster, name, identity, commit=False)
    except Exception as second:  # the first error is the one to report; the next begin clears this up
        error.add_note(f"its transaction {name} could not be aborted at once: {second}")


def _write_plainly(options: SinkOptions, attempt: Attempt, rows: Iterator[pa.RecordBatch]) -> None:
    """at_least_once: write the rows until every one is acknowledged. Retries within this attempt make no
    duplicates, unless kafka.enable.idempotence=false."""
    cluster = shared_cluster(options.client)
    first = next((batch for batch in rows if len(batch)), None)
    if first is None:
        return
    identity = None
    if options.idempotent:
        identity = transactions.init_producer_id(cluster, None, options.transaction_timeout_ms)
    with Producer(cluster, identity=identity) as producer:
        send = _sender(options, cluster, producer, attempt.partition, Tally(checksum=False))
        send(first)
        for batch in rows:
            send(batch)
        producer.flush()


def _sender(
    options: SinkOptions, cluster: Cluster, producer: Producer, seed: int, tally: Tally
) -> Callable[[pa.RecordBatch], None]:
    """A function that sends rows to their partitions, and bad ones, counted, to the dead letter topic if
    given."""
    partitions_of = _partitions_of(cluster)
    router = _router(options, partitions_of, options.topic, seed)

    def send(rows: pa.RecordBatch, to: Router = router) -> None:
        for destination in to.route(rows):
            producer.send(*destination)

    if options.deadletter_topic is None:
        return send
    limits = cache(lambda topic: _limits(cluster, topic, partitions_of(topic)))
    validator = RowValidator(options.topic, limits)
    letters = _router(options, partitions_of, options.deadletter_topic, seed)

    def send_or_bury(rows: pa.RecordBatch) -> None:
        good, dead = validator.split(rows)
        send(good)
        if dead is not None:
            text = "%d rows cannot be written and go to %s. See examples.md#dead-letters"
            logger.warning(text, len(dead), options.deadletter_topic)
            send(dead, letters)
            tally.dead += len(dead)

    return send_or_bury


def _limits(cluster: Cluster, topic: str, partitions: int) -> TopicLimits:
    return TopicLimits.of(partitions, topic_configs(cluster, [topic], LIMITING)[topic])


def _partitions_of(cluster: Cluster) -> Callable[[str], int]:
    """A function that returns a topic's number of partitions. The first call may create the topic. Later
    calls must not: if the topic was deleted in between, rows of this task were deleted with it."""
    seen: set[str] = set()

    def partitions_of(topic: str) -> int:
        found = retrying(
            cluster,
            f"Metadata of topic {topic!r}",
            lambda: len(cluster.topic(topic, create=topic not in seen).leaders),
            forget=lambda: cluster.forget_topic(topic),
        )
        seen.add(topic)
        return found

    return partitions_of


def _router(
    options: SinkOptions, partitions_of: Callable[[str], int], topic: str | None, seed: int
) -> Router:
    return Router(
        partitions_of,
        topic=topic,
        codec=options.codec,
        max_batch_bytes=options.max_batch_bytes,
        seed=seed,
    )


class _Slots(NamedTuple):
    """The transaction names that this process has used: its random word, and the number in each batch."""

    process: int
    worker: str
    used: dict[tuple[str, ProducerIdentity, int], tuple[int, int]]


_slots = _Slots(-1, "", {})


def _next_slot(stamp: Stamp) -> tuple[str, int]:
    """This process's random word and the number of its next transaction in the batch.

    Each process makes its own word, so no other process ever uses these names. Within a process, tasks run
    one after another, and the numbers start again with every batch.
    """
    global _slots
    if _slots.process != os.getpid():
        _slots = _Slots(os.getpid(), uuid.uuid4().hex[:16], {})
    key = (stamp.sink_id, stamp.incarnation, stamp.batch.batch_id % 2)
    batch_id, number = _slots.used.get(key, (-1, 0))
    if batch_id != stamp.batch.batch_id:
        number = 0
    _slots.used[key] = (stamp.batch.batch_id, number + 1)
    return _slots.worker, number
