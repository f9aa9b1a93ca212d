"""Looks at places in the log: whether it has the rows that a transaction wrote there, and how that ended."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets
from eoslog.client.admin.transaction_states import describe, list_transactions
from eoslog.client.records.fetch import FetchedBatches, Located, batch_at, fetch_batches
from eoslog.client.wire.cluster import Cluster, TopicInfo
from eoslog.client.wire.retry import retrying
from eoslog.connector.commit.places import Place, Seen, made_anew
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run.markers import look_at_partitions
from eoslog.errors import OffsetsGone, TopicRecreated, UnknownTopic
from eoslog.protocol import errors
from eoslog.protocol.batch import BatchHeader, iter_headers
from eoslog.protocol.control import COMMIT, read_control
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.names_by_sink import sink_of
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

LOOKED_THROUGH = 64 << 20
"""So many bytes of a partition are looked through for rows of transactions."""
_ROW_AND_MARKER = 2
"""A row of a transaction is visible when a marker follows it."""
_ANYBODY = "eoslog-anybody"
"""A transactional.id that is nobody's. Who may ask for it may ask for all."""


def look_at(cluster: Cluster, places: Collection[Place]) -> dict[Place, Seen]:
    """What the log shows at each place. Raises KafkaError, RetriesExhausted."""
    replaced, short = _lacks(cluster, tuple(places))
    known = dict.fromkeys(replaced, Seen.REPLACED) | dict.fromkeys(short, Seen.GONE)
    return known | _looks(cluster, [place for place in places if place not in known])


def lacking(
    cluster: Cluster, places: Iterable[Place], *, visible: Collection[Place] = ()
) -> dict[Place, str]:
    """What the log has not of these places, and why; of those whose rows are to be `visible`, what was
    aborted, too. Every place is looked at, as a leader may be elected that lacks rows of one partition alone.
    Raises KafkaError, RetriesExhausted."""
    wanted, shown = tuple(places), frozenset(visible)
    replaced, short = _lacks(cluster, wanted)
    lacks = replaced | short
    for place, how in _looks(cluster, [place for place in wanted if place not in lacks]).items():
        if how is Seen.GONE:
            lacks[place] = f"{place} holds other rows than were written there"
        if how is Seen.ABORTED and place in shown:
            lacks[place] = f"{place} holds them in a transaction that was aborted"
    return lacks


def followed(
    cluster: Cluster,
    places: Iterable[Place],
    sink: str | None = None,
    since: ProducerIdentity | None = None,
    waiting: Mapping[str, int] | None = None,
    rested: bool = False,
) -> list[str]:
    """Where rows of transactions follow in the places' topics, and how many, a text for each partition. In
    partitions without a place, rows count that are younger. Those of a transactional.id that no sink of
    eoslog made do not count: they are somebody else's for certain. What was removed behind a place counts,
    but for as many markers as there are writers. `sink`: only its rows count, and those of an id that the
    cluster does not know. `since`: nothing shows that there are any. So of the sink's runs only this one and
    later ones count, an id that may be hidden from this user is somebody else's, and all partitions together
    are looked through no further than one. `waiting`: topics where there is no place, and a time in ms;
    what was removed there counts unless something older is left, or `since` is given. `rested`: that time is
    so long ago that the cluster may have forgotten decisions since: what was removed counts all the same.
    Raises KafkaError, RetriesExhausted."""
    wanted = tuple(places)
    first = dict[TopicPartition, int]()
    for place in wanted:
        at = (place.topic, place.partition)
        first[at] = max(first.get(at, 0), place.offset + 1)
    waiting = waiting or {}
    topics = _topics(cluster, sorted({*waiting, *(place.topic for place in wanted)}))
    there = {(topic, p) for topic, info in topics.items() for p in info.leaders}
    newest = max((place.time_ms for place in wanted), default=0)
    younger = {tp: waiting.get(tp[0], newest) + 1 for tp in there - first.keys()}
    first = {tp: at for tp, at in first.items() if tp in there}
    markers, placed = len({place.writer for place in wanted}), dict(first)
    if younger:
        found = list_offsets(cluster, younger, committed=False)
        first |= {tp: at for tp, at in found.items() if at >= 0}
    unplaced = [tp for tp in sorted(younger) if tp[0] in waiting]
    asked = {*first, *unplaced}
    begins = list_offsets(cluster, dict.fromkeys(asked, EARLIEST), committed=True) if asked else {}
    ends = list_offsets(cluster, dict.fromkeys(asked, LATEST), committed=False) if asked else {}
    writers, most = _Writers(cluster, sink, since), LOOKED_THROUGH // (len(first) if since and first else 1)
    bounds = {tp: (max(first[tp], begins[tp]), ends[tp]) for tp in sorted(first)}
    said = (_follows(cluster, writers, *tp, *bounds[tp], most) for tp in bounds)
    removed = [
        f"{topic}-{partition} begins at {begins[topic, partition]}: what it had from {at} on was removed"
        for (topic, partition), at in sorted(placed.items())
        if sink is None and begins[topic, partition] > at + markers
    ]
    removed += [
        f"{tp[0]}-{tp[1]} begins at {begins[tp]}: what it had before was removed"
        for tp in unplaced
        if (rested or since is None)
        and begins[tp] > 0
        and first.get(tp, ends[tp]) <= begins[tp]  # else something older is left
    ]
    return [*removed, *(text for text in said if text)]


class _Writers:
    """Whose transactions have which producer id, as far as a coordinator still knows: for a week after the
    last one, by default. A producer id belongs to one transactional.id for ever."""

    def __init__(self, cluster: Cluster, sink: str | None, since: ProducerIdentity | None) -> None:
        self._cluster, self._sink, self._since = cluster, sink, since
        self._names: dict[int, str] = {}

    @property
    def of_any(self) -> bool:
        """Whether rows of any sink count."""
        return self._sink is None

    def name(self, producer_id: int) -> str:
        """The transactional.id; "": it is not known, or hidden from this user."""
        if producer_id not in self._names:
            found = list_transactions(self._cluster, "", producer_ids=[producer_id])
            names = (one.transactional_id for one in found if one.producer_id == producer_id)
            self._names[producer_id] = next(names, "")
        return self._names[producer_id]

    def counts(self, producer_id: int) -> bool:
        """Whether its rows are the sink's, or may be; without one, those of any sink."""
        sink, name = sink_of(self.name(producer_id)), self.name(producer_id)
        if not name:
            return self._since is None or self._sees_all
        return sink is not None if self.of_any else sink == self._sink and not self._is_of_before(name)

    def _is_of_before(self, name: str) -> bool:
        """Whether an earlier run of the sink has this transactional.id."""
        slot = None if self._sink is None else Sink(self._sink).slot_of(name)
        if self._since is None or slot is None:
            return False
        return slot.incarnation.producer_id == self._since.producer_id and slot.incarnation < self._since

    @cached_property
    def _sees_all(self) -> bool:
        """Whether no transactional.id is hidden from this user."""
        try:
            describe(self._cluster, [_ANYBODY])
        except errors.TransactionalIdAuthorizationFailed:
            return False
        return True


class _Written(NamedTuple):
    """Rows of a transaction in a partition: whose, the first and the last offset, and how many."""

    producer_id: int
    first: int
    last: int
    rows: int


def _follows(
    cluster: Cluster, writers: _Writers, topic: str, partition: int, start: int, end: int, most: int
) -> str:
    """How many rows of committed transactions are between two offsets, and where; "": none. Another
    transaction that is open may hide them from readers: that does not change what they are. `most`: so many
    bytes are looked through."""
    if end - start < _ROW_AND_MARKER:
        return ""
    looked, found, opened = 0, list[_Written](), dict[int, _Written]()
    try:
        for answer in fetch_batches(cluster, topic, partition, start, end, committed=False):
            found += _committed_in(answer, start, writers, opened)
            looked += len(answer.records)
            if looked > most:
                break
    except (OffsetsGone, TopicRecreated, errors.TopicAuthorizationFailed) as error:
        logger.debug("%s-%d cannot be looked through: %s", topic, partition, error)
    if not found:
        unknown = looked > most and writers.of_any
        return f"{topic}-{partition} has so many that not all were looked at" if unknown else ""
    name, where = writers.name(found[0].producer_id), (topic, partition)
    stable = list_offsets(cluster, {where: LATEST}, committed=True)[where]
    more, by = " or more" if looked > most else "", f" of {name}" if name else ""
    hides = ", which an open transaction before them hides from readers of committed data until it ends"
    rows, first = sum(each.rows for each in found), found[0].first
    said = f"{topic}-{partition} has {rows}{more} rows{by} from offset {first} on"
    return said + (hides if any(each.last >= stable for each in found) else "")


def _committed_in(
    answer: FetchedBatches, start: int, writers: _Writers, opened: dict[int, _Written]
) -> Iterator[_Written]:
    """The transactions that markers of this answer commit, with their rows from `start` on. `opened`: those
    whose marker is yet to come, by producer id; it is carried from answer to answer."""
    for position, batch in _headers(answer):
        who = batch.producer_id
        if batch.is_control:
            ended = opened.pop(who, None)
            if ended is not None and read_control(answer.records, position, batch).type == COMMIT:
                yield ended
        elif batch.is_transactional and writers.counts(who):
            rows, first = min(batch.count, batch.next_offset - start), max(start, batch.base_offset)
            before = opened.get(who, _Written(who, first, first, 0))
            opened[who] = before._replace(last=batch.next_offset - 1, rows=before.rows + rows)


def topic_ids(cluster: Cluster, names: Iterable[str]) -> dict[str, str | None]:
    """The ids of the topics that there are. Raises KafkaError, RetriesExhausted."""
    return {name: found.topic_id for name, found in _topics(cluster, sorted(names)).items()}


def _lacks(cluster: Cluster, places: tuple[Place, ...]) -> tuple[dict[Place, str], dict[Place, str]]:
    """The places whose topics are not there any more, and those behind the end of a log; each with why."""
    topics = _topics(cluster, sorted({place.topic for place in places}))
    replaced = {place: said for place in places if (said := _other_topic(place, topics.get(place.topic)))}
    asked = dict.fromkeys(((p.topic, p.partition) for p in places if p not in replaced), LATEST)
    ends = list_offsets(cluster, asked, committed=False) if asked else {}
    bounds = {p: ends[p.topic, p.partition] for p in places if p not in replaced}
    short = {
        p: f"{p.topic}-{p.partition} ends at {end}, and rows were written up to {p.offset}"
        for p, end in bounds.items()
        if end <= p.offset
    }
    return replaced, short


def _topics(cluster: Cluster, names: list[str]) -> Mapping[str, TopicInfo]:
    """The topics that there are. One that a broker does not know is asked for with patience."""
    if not names:
        return {}
    found = retrying(cluster, "Metadata", lambda: cluster.metadata(names))
    topics = dict(found.topics)
    for name, code in found.errors.items():
        if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            continue  # of such a name there is no topic
        try:
            topics[name] = cluster.describe(name)
        except UnknownTopic:
            if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
    return topics


def _other_topic(place: Place, now: TopicInfo | None) -> str:
    if now is None or place.partition not in now.leaders:
        return f"{place.topic}-{place.partition} does not exist any more"
    return made_anew(place.topic, place.topic_id, now.topic_id)


def _looks(cluster: Cluster, places: Collection[Place]) -> dict[Place, Seen]:
    """What the log shows at places that are before its end."""
    asked = dict.fromkeys(((place.topic, place.partition) for place in places), EARLIEST)
    begins = list_offsets(cluster, asked, committed=False) if asked else {}
    return {
        place: Seen.REMOVED if begins[place.topic, place.partition] > place.offset else _look(cluster, place)
        for place in places
    }


def _look(cluster: Cluster, place: Place) -> Seen:
    where = (place.topic, place.partition)
    try:
        batch, aborted = batch_at(cluster, *where, place.offset, topic_id=place.topic_id)
        if batch is None:  # an open transaction hides it, or compaction has taken it
            batch, _ = batch_at(cluster, *where, place.offset, topic_id=place.topic_id, committed=False)
            if batch is None:
                return Seen.REMOVED
            return Seen.GONE if _is_at(batch, place) is False else _ended(cluster, place)
    except (OffsetsGone, TopicRecreated):  # just now
        return Seen.REMOVED
    except errors.TopicAuthorizationFailed as error:  # a sink may write without the right to read
        logger.debug("%s cannot be looked at: %s", place, error)
        return Seen.HIDDEN
    same = _is_at(batch, place)
    if same is None:
        return Seen.REMOVED
    if not same:
        return Seen.GONE
    return Seen.ABORTED if aborted else Seen.COMMITTED


def _ended(cluster: Cluster, place: Place) -> Seen:
    """How the transaction has ended whose rows readers of committed data do not come to: it may be open, or
    another one that began before them. Its leader tells that it is open; else its own marker tells how."""
    where = (place.topic, place.partition)
    opened = look_at_partitions(cluster, [where], late=True)[where].opened or ()
    if any(writer.producer_id == place.writer.producer_id for writer in opened):
        return Seen.OPEN
    end = list_offsets(cluster, {where: LATEST}, committed=False)[where]
    for answer in fetch_batches(
        cluster, *where, place.offset + 1, end, committed=False, topic_id=place.topic_id
    ):
        for position, batch in _headers(answer):
            if batch.is_control and batch.producer_id == place.writer.producer_id:
                commit = read_control(answer.records, position, batch).type == COMMIT
                return Seen.COMMITTED if commit else Seen.ABORTED
    return Seen.OPEN


def _headers(answer: FetchedBatches) -> Iterator[Located]:
    """Where batches and markers are in an answer, and their headers."""
    found = iter_headers(answer.records)
    return ((at, batch) for at, batch in found if batch.next_offset > answer.position)


def _is_at(batch: BatchHeader, place: Place) -> bool | None:
    """Whether it is the batch that was written there. None: compaction has left too little of it."""
    if ProducerIdentity(batch.producer_id, batch.producer_epoch) != place.writer:
        return False
    if batch.max_timestamp != place.time_ms:  # compaction leaves the latest time of the records that stay
        return False if batch.count == batch.last_offset_delta + 1 else None
    return True
