"""Past batches of a sink: where its rows ended after one of its micro-batches (as.of.batch, as.of.time).

A group's offsets hold a sink's last decision. Former ones stand in the log of `__consumer_offsets` until it
is compacted, each with the last place of the sink's rows in each partition. A read up to these places has the
rows of all batches up to that one, and none of a later batch: those lie behind.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eoslog.client.admin.topics import describe_topics, list_offsets, settled_end, topic_configs
from eoslog.client.records.fetch import fetch
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.faults import DecisionDamaged
from eoslog.connector.commit.places import made_anew
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import EARLIEST, LATEST, Offsets
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.connector.source.whole_batches import places_known, rows_end
from eoslog.errors import OptionError
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.group_records import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from eoslog.protocol.names_by_sink import ANCHOR
from eoslog.protocol.topic_partitions import TopicPartition

_KINDS = (0, 1)
"""Of a key in `__consumer_offsets`: those of an offset, which have one layout."""
_POLICY = "cleanup.policy"


class Stored(NamedTuple):
    """A decision in the log: the number that counts a sink's decisions, when it was committed (ms since
    1970), and its chunks by number, each with that sequence and its text."""

    sequence: int
    time_ms: int
    chunks: dict[int, tuple[int, str]]


class PastBatches:
    """The decisions of one sink that the log still has. Reads them once, and asks nothing of the sink."""

    def __init__(self, log: SourceTopics) -> None:
        (name,) = log.options.whole_batches or ()
        self._log, self._options, self._sink = log, log.options, Sink(name)

    def ends(self, start: Offsets) -> Offsets:
        """Where each partition ends after the batch that the options name. `start`: where the read begins,
        and ends where the sink had no row yet. Raises OptionError, CommitFault, RetriesExhausted and
        KafkaError."""
        stored = list(decisions_in_log(self._log.cluster, self._sink, self._options.decision_topic))
        of_batch = self._options.as_of_batch
        decision = self._of_time(stored) if of_batch is None else self._of_batch(stored, of_batch)
        found = self._placed(decision, stored, start)
        for where, end in found.items():
            if end > start[where]:
                settled_end(self._log.cluster, where, end)
        return found

    def _of_batch(self, stored: Sequence[Stored], number: int) -> Decision:
        """The last decision of this batch that the sink's last query has made."""
        query, oldest = None, -1
        for one in reversed(stored):
            decision = self._decoded(one)
            if decision is None or decision.is_write:
                continue
            query = query or decision.batch.query_id
            if decision.batch.query_id == query:
                if decision.batch.batch_id == number:
                    return decision
                oldest = decision.batch.batch_id
        known = (
            "has no decision of a query" if query is None else f"begins with batch {oldest} of query {query}"
        )
        raise OptionError(
            f"as.of.batch={number}: what {ANCHOR} has of sink {self._sink.id} {known}. Brokers compact "
            "former decisions away. Nothing was read: give another batch, or leave as.of.batch out"
        )

    def _of_time(self, stored: Sequence[Stored]) -> Decision:
        """The last decision that was made by then, if the log has all of it, and the one behind it."""
        until = self._options.as_of_time or 0
        made = [one for one in stored if one.time_ms <= until]
        following = stored[len(made)].sequence if len(made) < len(stored) else None
        decision = self._decoded(made[-1]) if made else None
        if decision is not None and following in (None, 1, decision.sequence + 1):
            return decision
        known = f"begins at {stored[0].time_ms}" if stored else "is empty"
        known = f"{known}, and has not all of that time" if made else known
        raise OptionError(
            f"as.of.time={until}: what {ANCHOR} has of sink {self._sink.id} {known}. Brokers compact former "
            "decisions away. Nothing was read: give a later time, or leave as.of.time out"
        )

    def _decoded(self, one: Stored) -> Decision | None:
        """The decision; None: compaction has taken a part of it."""
        try:
            return decode(self._sink, one.chunks)
        except DecisionDamaged:
            return None

    def _placed(self, decision: Decision, stored: Sequence[Stored], start: Offsets) -> Offsets:
        """Behind the sink's last row in each partition. Raises OptionError where that is not known."""
        ids, placed = self._log.ids, rows_end([decision], self._log.ids)
        logs = list_offsets(self._log.cluster, dict.fromkeys(placed.keys() & start, LATEST), committed=False)
        for place in places_known(decision):
            if place.topic in ids and (anew := made_anew(place.topic, place.topic_id, ids[place.topic])):
                raise OptionError(
                    f"{self._said}: {anew} since {decision.batch}, and its rows went with it. Nothing was "
                    "read: give another batch"
                )
        if cut := sorted(tp for tp, at in logs.items() if at < placed[tp]):
            (topic, partition), at = cut[0], logs[cut[0]]
            raise OptionError(
                f"{self._said}: {topic}-{partition} ends at {at}, and its rows went to offset "
                f"{placed[cut[0]] - 1}: the log was cut, or the topic was created again. Nothing was read: "
                "give another batch"
            )
        before = {tp: start[tp] for tp in start if tp not in placed}
        if unknown := sorted(tp for tp in before if self._may_have(decision, stored, tp)):
            said = ", ".join(f"{topic}-{partition}" for topic, partition in unknown)
            raise OptionError(
                f"{self._said}: where the sink's rows ended in {said} is not known. Nothing was read: name "
                "the other partitions (option assign), or another batch"
            )
        self._check_there({tp: placed[tp] for tp in start if tp in placed}, start)
        return {tp: max(at, placed.get(tp, at)) for tp, at in start.items()}

    def _may_have(self, decision: Decision, stored: Sequence[Stored], where: TopicPartition) -> bool:
        """Whether the sink may have had rows where its decision has no place: the log's first decision shows
        that it had none, if it is the first of all and each later one is there."""
        topics = {topic for topic, _ in decision.topics}
        if where[0] not in topics and where not in decision.written and not decision.is_write:
            return False
        until = [one for one in stored if one.sequence <= decision.sequence]
        if [one.sequence for one in until] != list(range(1, decision.sequence + 1)):
            return True
        each = [self._decoded(one) for one in until]
        return any(one is None or where in one.written for one in each)

    def _check_there(self, ends: Offsets, start: Offsets) -> None:
        """Raise OptionError if rows before these ends may be gone that were there then. With
        failOnDataLoss=false what is there is read."""
        if not self._options.fail_on_data_loss:
            return
        first = self._log.beginnings(ends)
        cut = [tp for tp in sorted(ends) if start[tp] == first[tp] > 0 and not self._is_given(tp)]
        if cut:
            (topic, partition), at = cut[0], first[cut[0]]
            raise OptionError(
                f"{self._said}: {topic}-{partition} begins at {at} now. Retention, or somebody, has removed "
                "records before it, which may have been there then. Nothing was read: give startingOffsets "
                "as offsets; or, to read what is there, set failOnDataLoss=false"
            )
        if compacted := [
            topic for topic in sorted({topic for topic, _ in ends}) if self._is_compacted(topic)
        ]:
            raise OptionError(
                f"{self._said}: topic {compacted[0]} is compacted, or that cannot be seen, so records may be "
                "gone since. Nothing was read: to read what is there, set failOnDataLoss=false"
            )

    def _is_given(self, where: TopicPartition) -> bool:
        """Whether startingOffsets has an offset for the partition."""
        starting = self._options.starting
        return isinstance(starting, dict) and starting.get(where, EARLIEST) not in (EARLIEST, LATEST)

    def _is_compacted(self, topic: str) -> bool:
        try:
            policy = topic_configs(self._log.cluster, [topic], [_POLICY])[topic].get(_POLICY, "compact")
        except KafkaError:
            return True
        return "compact" in policy

    @property
    def _said(self) -> str:
        batch, time_ms = self._options.as_of_batch, self._options.as_of_time
        given = f"as.of.time={time_ms}" if batch is None else f"as.of.batch={batch}"
        return f"{given} of sink {self._sink.id}"


def decisions_in_log(cluster: Cluster, sink: Sink, anchor: str) -> Iterator[Stored]:
    """The decisions of a sink, in the order in which they were made, as far as compaction has left them.
    `anchor`: the topic that its group has offsets of. Raises what `fetch` raises."""
    topic = describe_topics(cluster, [ANCHOR])[ANCHOR]
    where = (ANCHOR, coordinator_records.partition_of(sink.group, len(topic.partitions)))
    now: Stored | None = None
    for number, sequence, text, time_ms in _chunks(cluster, where, sink, anchor):
        if now is None or now.sequence != sequence or number in now.chunks:
            if now is not None:
                yield now
            now = Stored(sequence, time_ms, {})
        now.chunks[number] = (sequence, text)
    if now is not None:
        yield now


def _chunks(
    cluster: Cluster, where: TopicPartition, sink: Sink, anchor: str
) -> Iterator[tuple[int, int, str, int]]:
    """Of each offset that the sink's group has committed for the anchor: partition, offset, metadata and
    time."""
    begin = list_offsets(cluster, {where: EARLIEST}, committed=True)[where]
    for records in fetch(cluster, *where, begin, settled_end(cluster, where), committed=True):
        wanted = _of_group(records.key, sink.group)
        columns = (
            column.filter(wanted).to_pylist() for column in (records.key, records.value, records.timestamp)
        )
        for key, value, time_ms in zip(*columns, strict=True):
            _, names = coordinator_records.decode(OFFSET_COMMIT_KEY, key)
            if value is not None and names["topic"] == anchor:
                _, found = coordinator_records.decode(OFFSET_COMMIT_VALUE, value)
                yield names["partition"], found["offset"], found["metadata"], time_ms


def _of_group(keys: pa.Array, group: str) -> pa.Array:
    """Which keys of `__consumer_offsets` are those of the group's offsets."""
    name = group.encode()
    heads = [kind.to_bytes(2, "big") + len(name).to_bytes(2, "big") + name for kind in _KINDS]
    return pc.or_(*(pc.starts_with(keys, head) for head in heads))
