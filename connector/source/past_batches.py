"""Past batches of a sink: where its rows ended after one of its micro-batches (as.of.batch, as.of.time).

A group's offsets hold a sink's last decision. Former ones stand in the log of `__consumer_offsets` until it
is compacted, each with the last place of the sink's rows in each partition. A read up to these places has the
rows of all batches up to that one, and none of a later batch: those lie behind.

A sink's decisions count from 1 again when its group was forgotten, its query has changed its name or moved to
another cluster: the first decision that is known says nothing of rows before it. Where a decision has no
place, the log itself has to show that the sink had no row yet.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eoslog.client.admin.topics import describe_topics, list_offsets, settled_end, topic_configs
from eoslog.client.records.fetch import fetch, fetch_batches
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.faults import DecisionDamaged
from eoslog.connector.commit.places import by_partition, made_anew
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import EARLIEST, LATEST, Offsets
from eoslog.connector.source.source_topics import SourceTopics
from eoslog.connector.source.whole_batches import rows_end
from eoslog.errors import OptionError
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.group_records import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from eoslog.protocol.names_by_sink import ANCHOR
from eoslog.protocol.producer_identity import ProducerIdentity
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
        at = self._of_time(stored) if of_batch is None else self._of_batch(stored, of_batch)
        found = self._placed(stored[: at + 1], start)
        for where, end in found.items():
            if end > start[where]:
                settled_end(self._log.cluster, where, end)
        return found

    def _of_batch(self, stored: Sequence[Stored], number: int) -> int:
        """Which is the last decision of this batch that the sink's last query has made."""
        query, oldest = None, -1
        for at in reversed(range(len(stored))):
            decision = self._decoded(stored[at])
            if decision is None or decision.is_write:
                continue
            query = query or decision.batch.query_id
            if decision.batch.query_id == query:
                if decision.batch.batch_id == number:
                    return at
                oldest = decision.batch.batch_id
        known = (
            "has no decision of a query" if query is None else f"begins with batch {oldest} of query {query}"
        )
        raise OptionError(
            f"as.of.batch={number}: what {ANCHOR} has of sink {self._sink.id} {known}. Brokers compact "
            "former decisions away. Nothing was read: give another batch, or leave as.of.batch out"
        )

    def _of_time(self, stored: Sequence[Stored]) -> int:
        """Which is the last decision that was made by then, if the log has all of it, and the one behind
        it."""
        until = self._options.as_of_time or 0
        made = [one for one in stored if one.time_ms <= until]
        following = stored[len(made)].sequence if len(made) < len(stored) else None
        decision = self._decoded(made[-1]) if made else None
        if decision is not None and following in (None, 1, decision.sequence + 1):
            self._check_stayed(decision, made)
            return len(made) - 1
        known = f"begins at {stored[0].time_ms}" if stored else "is empty"
        known = f"{known}, and has not all of that time" if made else known
        raise OptionError(
            f"as.of.time={until}: what {ANCHOR} has of sink {self._sink.id} {known}. Brokers compact former "
            "decisions away. Nothing was read: give a later time, or leave as.of.time out"
        )

    def _check_stayed(self, decision: Decision, made: Sequence[Stored]) -> None:
        """Raise OptionError if the sink's query wrote elsewhere by then: it has others of that time."""
        if (left := decision.left) is None or left.sink == self._sink.id:  # then it went to another cluster
            return
        first, since = left, made[-1].time_ms  # each of its starts has left the sink again
        for at, one in ((one.time_ms, self._decoded(one)) for one in reversed(made)):
            if one is not None and one.left is None:
                break
            first, since = (first if one is None or one.left is None else one.left), at
        to = f"transactional.id={left.sink}" if left.sink else "processing.guarantee=at_least_once"
        way = f"read.whole.batches={left.sink}, or " if left.sink else ""
        raise OptionError(
            f"{self._said}: its query has gone on with {to} since batch {first.batch_id}, at {since}. Later "
            f"batches are not of this sink. Nothing was read: give {way}as.of.time={since - 1} or less"
        )

    def _decoded(self, one: Stored) -> Decision | None:
        """The decision; None: compaction has taken a part of it."""
        try:
            return decode(self._sink, one.chunks)
        except DecisionDamaged:
            return None

    def _placed(self, until: Sequence[Stored], start: Offsets) -> Offsets:
        """Behind the sink's last row in each partition. `until`: its decisions up to the one that counts.
        Raises OptionError where that is not known."""
        made = [one for one in map(self._decoded, until) if one is not None]
        decision = made[-1]
        placed = rows_end([decision], self._log.ids)
        self._check_same_logs(decision, placed, start)
        sure = placed.keys() & _named_since(made)
        self._check_no_more(
            {tp: max(at, placed.get(tp, 0)) for tp, at in start.items() if tp not in sure}, until[-1]
        )
        found = {tp: max(at, placed.get(tp, at)) for tp, at in start.items()}
        self._check_there(found, start)
        return found

    def _check_same_logs(self, decision: Decision, placed: Offsets, start: Offsets) -> None:
        """Raise OptionError if a topic is not the one that the rows went to, or ends before them."""
        ids = self._log.ids
        logs = list_offsets(self._log.cluster, dict.fromkeys(placed.keys() & start, LATEST), committed=False)
        for place in decision.known_rows:
            if place.topic in ids and (anew := made_anew(place.topic, place.topic_id, ids[place.topic])):
                raise OptionError(
                    f"{self._said}: {anew} since {decision.batch}, and its rows went with it. Nothing was "
                    f"read: {self._other}"
                )
        if cut := sorted(tp for tp, at in logs.items() if at < placed[tp]):
            (topic, partition), at = cut[0], logs[cut[0]]
            raise OptionError(
                f"{self._said}: {topic}-{partition} ends at {at}, and its rows went to offset "
                f"{placed[cut[0]] - 1}: the log was cut, or the topic was created again. Nothing was read: "
                f"{self._other}"
            )

    def _check_no_more(self, begins: Offsets, until: Stored) -> None:
        """Raise OptionError unless the first row from here on is of a later decision than `until`, or there
        is none: then an earlier one has no row there."""
        cluster = self._log.cluster
        ends = list_offsets(cluster, dict.fromkeys(begins, LATEST), committed=False) if begins else {}
        asked = {tp: settled_end(cluster, tp, ends[tp]) for tp, at in begins.items() if at < ends[tp]}
        if not asked:
            return
        later = self._writers_after(until)
        if unknown := sorted(tp for tp in asked if self._is_others(tp, begins[tp], ends[tp], later)):
            said = ", ".join(f"{topic}-{partition}" for topic, partition in unknown)
            raise OptionError(
                f"{self._said}: where the sink's rows ended in {said} is not known. Rows there may be of "
                "batches that its known decisions do not name, as after a new transactional.id or a move. "
                f"Nothing was read: name the other partitions (option assign), or {self._other}"
            )

    def _writers_after(self, until: Stored) -> Collection[ProducerIdentity]:
        """Who has written the batches that were decided after this one, as far as that is known by now."""
        stored = list(decisions_in_log(self._log.cluster, self._sink, self._options.decision_topic))
        at = next((n for n, one in enumerate(stored) if one[:2] == until[:2]), len(stored))
        later = [one for one in map(self._decoded, stored[at + 1 :]) if one is not None]
        return {who.identity for one in later for who in one.participants}

    def _is_others(
        self, where: TopicPartition, begin: int, end: int, writers: Collection[ProducerIdentity]
    ) -> bool:
        """Whether the first committed row in a part of a partition is of none of these writers."""
        with closing(fetch_batches(self._log.cluster, *where, begin, end, committed=True)) as answers:
            first = next((batch for answer in answers for _, batch in answer.batches), None)
        return first is not None and ProducerIdentity(first.producer_id, first.producer_epoch) not in writers

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
    def _other(self) -> str:
        """The way out where this batch cannot be read as it was."""
        if self._options.as_of_batch is None:
            return "give another time, or leave as.of.time out"
        return "give another batch, or leave as.of.batch out"

    @property
    def _said(self) -> str:
        batch, time_ms = self._options.as_of_batch, self._options.as_of_time
        given = f"as.of.time={time_ms}" if batch is None else f"as.of.batch={batch}"
        return f"{given} of sink {self._sink.id}"


def _named_since(made: Sequence[Decision]) -> Collection[TopicPartition]:
    """Where batches of these decisions have written, the oldest first, and the last place is known, since the
    sink's query was elsewhere: under another name or on another cluster, where it has written rows that no
    place of this sink names. What a decision says of earlier ones may be from before that. A write of
    foreachBatch has its places among those of earlier ones, or nowhere."""
    found: set[TopicPartition] = set()
    for before, one in zip((None, *made), made, strict=False):
        if before is not None and _came_back(before, one):
            found.clear()
        told = by_partition(one.everywhere if one.is_write else one.places).keys()
        found.update(by_partition(one.places), told & set(one.written))
        found.difference_update(set(one.written) - told)
    return found


def _came_back(before: Decision, one: Decision) -> bool:
    """Whether the sink's query was elsewhere between two decisions, or may have been: they were forgotten."""
    if one.sequence < before.sequence or (before.left is not None and one.left is None):
        return True
    then, now = before.of_query, one.of_query
    if then is None or now is None or then.batch.query_id != now.batch.query_id:
        return False
    return now.batch.batch_id - then.batch.batch_id > max(1, one.sequence - before.sequence)


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
