"""The decision: which batch is done and which transactions hold its rows.

It is stored in the sink's consumer group, as the metadata of offsets on partitions 0, 1, ... of the topic
ANCHOR, or of the one that option decision.topic names: the rules say ANCHOR (connector/run/runner.py). The
committed offset is the decision's sequence number. The metadata is one chunk of its JSON after a head:
`eoslog/<format> <chunk> <chunks> <CRC-32> `. A later, shorter decision leaves chunks of older ones behind in
higher partitions: the highest sequence number counts. What the partitions have no room for is in further
groups, on the same partitions and in the same transaction: <group>/1, <group>/2, ... (commands.py, look_up).
"""

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from eoslog.connector.commit.faults import DecisionDamaged
from eoslog.connector.commit.places import Places, from_json, outlasting, to_json
from eoslog.connector.commit.saved_state import Saved
from eoslog.connector.commit.task_reports import Batch, Left, Start
from eoslog.connector.commit.transactional_ids import Participant, ParticipantSlot, Sink, parity
from eoslog.connector.commit.winner import Winner
from eoslog.connector.commit.write_token import (
    PASSED,
    BatchWrites,
    Content,
    RememberedTokens,
    Token,
    content_of,
)
from eoslog.protocol.names_by_sink import ANCHOR as ANCHOR
from eoslog.protocol.names_by_sink import DECISION
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition

KEPT_QUERIES = 16
"""A decision keeps the last batch of this many other queries of its sink, some 60 characters each."""
KEPT_TOPICS = 8
"""A decision names so many topics of its sink: more than one is all that who follows the sink has to know."""
KEPT_PLACES = 100
"""A decision keeps the last places in so many partitions to which its batch has not written, some 35
characters each."""
METADATA_LIMIT = 4096
"""How many UTF-16 units the metadata of a partition may have (default of offset.metadata.max.bytes)."""

_FORMAT = 2
"""What the JSON's fields mean. 2: partitions are said as runs, and chunks may be in further groups. Raise it
when a field gets another meaning. A new field needs no number: a decision with unknown fields is not read."""
_FIELDS = frozenset(
    (
        *("query", "batch", "digest", "run", "won", "wrote", "rows", "sums", "before", "tokens", "saved"),
        *("ends", "places", "names", "start", "topics", "left", "within", "behind", "write", "older"),
        "starts",
    )
)
_HEAD_ROOM = 64

Chunks = Mapping[int, tuple[int, str]]
"""Partition of ANCHOR -> (committed offset, metadata)."""


class Decision(NamedTuple):
    """One decided batch. `sequence` counts a sink's decisions from 1.

    `rows` and `checksums`: of each of the batch's tasks, by Spark partition; empty: not recorded.
    `earlier`: the last decided batch of each other query that has used the sink, newest first. Spark replays
    a batch that was decided but not noted in its checkpoint when the query comes back; its rows must not be
    written again. `tokens`: in a sink of batch writes with tokens, what was written under the last tokens,
    this one included. `saved`: where the query's state is (state.topic). `ends`: the batch's plan:
    its entry of Spark's offset log, as Planned.ends has it. `places`: where the winners' rows are. `older`:
    the last place in each partition to which only earlier batches of the sink wrote, none where that is not
    known. Each of the three is empty if it is not recorded, or if there was no room.
    `names`: the id of the sink that named the winners' transactions; empty: this one (decide.py, Namer).
    `start`: of the query, whose checkpoint knows it; None: not recorded.
    `topics`: to which the sink's queries have written rows, but for dead letters, each with the number of the
    last decision that did, the newest first; empty: not recorded.
    `left`: the sink was left after this batch. It stays until a start of a query decides.
    `within`: in the sink of a query's writes in foreachBatch, what they have written, this one included.
    `behind`: in a batch write's decision, what it keeps of the sink's last query (kept_of_query); None: there
    was none, or an older version has not kept it.
    `write_of`: of a batch write, the query whose foreachBatch has made it; else the one that used the sink
    before, "": none is known. None: it is a stream's batch, or an earlier version has made it.
    `starts`: the last one of each query in `earlier`, by its id.
    """

    sequence: int
    batch: Batch
    incarnation: ProducerIdentity
    winners: tuple[Winner, ...]
    written: tuple[TopicPartition, ...]
    rows: tuple[int, ...] = ()
    checksums: tuple[int, ...] = ()
    earlier: tuple[Batch, ...] = ()
    tokens: RememberedTokens = RememberedTokens()
    saved: Saved | None = None
    ends: str = ""
    places: Places = ()
    names: str = ""
    start: Start | None = None
    topics: tuple[tuple[str, int], ...] = ()
    left: Left | None = None
    within: BatchWrites = BatchWrites()
    behind: "Decision | None" = None
    write_of: str | None = None
    older: Places = ()
    starts: tuple[tuple[str, Start], ...] = ()

    @property
    def is_write(self) -> bool:
        """Whether a batch write has made it, which takes nobody's place. Earlier versions did not mark
        theirs, which have nothing of a query: no plan, nor a digest of one."""
        of_query = self.start is not None or self.ends or self.saved is not None or self.batch.digest
        return self.write_of is not None or not of_query

    @property
    def said(self) -> str:
        """How messages name it: the number of a write's batch is no one's but the sink's."""
        for write in self.within.kept[-1:]:  # this one
            under = f", with write.token={write.token}," if write.token else ""
            return f"the write of batch {write.batch} of query {self.batch.query_id} to {write.where}{under}"
        if self.tokens.get(Token.of(self.batch.query_id)) is not None:
            return f"the write with write.token={self.batch.query_id}"
        return str(self.batch)

    @property
    def used_by(self) -> str:
        """The query that uses the sink: it has decided here, or its foreachBatch has written. "": none is
        known."""
        known = self.behind if self.is_write else self
        return self.write_of or ("" if known is None else known.batch.query_id)

    @property
    def word(self) -> str:
        """The decision in a word of start.accepted: no later one of any run of the sink has the same."""
        return f"{self.used_by or 'no-query'}:{self.sequence}"

    @property
    def of_query(self) -> "Decision | None":
        """The sink's last decision of a query: this one, or what a batch write keeps of it. None: there is
        none. Of an older version's batch write only the last batch before it is known."""
        if not self.is_write:
            return self
        if self.behind is None and self.earlier and self.write_of is None:
            return Decision(self.sequence, self.earlier[0], self.incarnation, (), ())
        return self.behind

    @property
    def went_to(self) -> tuple[str, ...]:
        """The topics that the batch's rows went to; without rows, that of the query, if it is known."""
        topics = {topic for topic, _ in self.written}
        if not topics and self.start is not None and self.start.topic:
            topics = {self.start.topic}
        return tuple(sorted(topics))

    def kept_of_query(self, sequence: int) -> "Decision | None":
        """What the next decision, `sequence`, keeps of the sink's last query if a batch write makes it."""
        if self.is_write:
            if self.behind is None:
                return None
            older = outlasting(self.behind.older, self.everywhere, self.written)
            return self.behind._replace(sequence=sequence, older=older)
        kept = self._replace(
            sequence=sequence, winners=(), places=(), topics=(), earlier=(), starts=(), names=""
        )
        kept = kept._replace(older=self.everywhere[-KEPT_PLACES:])
        return kept._replace(tokens=RememberedTokens(), within=BatchWrites(), left=None)

    @property
    def everywhere(self) -> Places:
        """The places of this batch and of earlier ones."""
        return (*self.older, *self.places)

    @property
    def known_rows(self) -> Places:
        """Where the sink's rows end, as far as this decision knows: the query's, and those of batch writes
        since."""
        if self.behind is None:
            return self.everywhere
        before = outlasting(self.behind.everywhere, self.everywhere, self.written)
        return (*before, *self.everywhere)

    def older_after(self, places: Places, written: Collection[TopicPartition] = ()) -> Places:
        """The `older` of the next decision of a query, whose batch has these places."""
        return outlasting(self.known_rows, places, written)[-KEPT_PLACES:]

    def older_of_write(self, places: Places, written: Collection[TopicPartition]) -> Places:
        """The same of a batch write, for which `behind` has what a query's last decision knows."""
        return outlasting(self.everywhere, places, written)[-KEPT_PLACES:] if self.is_write else ()

    def successor_of(self, query_id: str) -> str | None:
        """Which query has decided in this sink since this one did. None: none has, or this one never did."""
        newest = None if self.of_query is None else self.of_query.batch.query_id
        followed = newest != query_id and any(b.query_id == query_id for b in self._batches)
        return newest if followed else None

    @property
    def _batches(self) -> tuple[Batch, ...]:
        """The last batch of each query that is known, the newest first."""
        known: dict[str, Batch] = {}
        for batch in (self.batch, *(() if self.behind is None else (self.behind.batch,)), *self.earlier):
            known.setdefault(batch.query_id, batch)
        return tuple(known.values())

    def is_after(self, batch: Batch) -> bool:
        """Whether a later batch of the query is decided: Spark runs this one for its state alone."""
        decided = self.last_of(batch.query_id)
        return decided is not None and batch.batch_id < decided.batch_id

    def last_of(self, query_id: str) -> Batch | None:
        """The last decided batch of a query or a token. None: there is none, or it is forgotten."""
        if query_id != self.batch.query_id and self.tokens.get(Token.of(query_id)) is not None:
            return Batch(query_id, PASSED)
        return next((b for b in self._batches if b.query_id == query_id), None)

    @property
    def content(self) -> Content:
        """Rows and checksum of the whole batch."""
        return content_of(self.rows, self.checksums)

    def content_of(self, token: str) -> Content:
        """Rows and checksum written under `token`, which must be known here."""
        return self.tokens.get(Token.of(token)) or self.content

    def earlier_than(self, query_id: str) -> tuple[Batch, ...]:
        """The `earlier` of the next decision, if this query makes it."""
        others = [batch for batch in self._batches if batch.query_id != query_id]
        return tuple(others[:KEPT_QUERIES])

    def followed_by(self, decision: "Decision") -> "Decision":
        """The next decision, with what it remembers of other queries."""
        query_id = decision.batch.query_id
        known = dict(self.starts)
        for one in (self.behind, None if self.is_write else self):
            if one is not None and one.start is not None:
                known[one.batch.query_id] = one.start
        earlier = self.earlier_than(query_id)
        starts = tuple((one.query_id, known[one.query_id]) for one in earlier if one.query_id in known)
        return decision._replace(earlier=earlier, starts=starts)

    def of(self, query_id: str) -> "Decision | None":
        """What is known of a query's last decision here, of which it may be the batch and the start alone.
        None: it has made none, or that is forgotten."""
        last, batch = self.of_query, self.last_of(query_id)
        if last is not None and last.batch.query_id == query_id:
            return last
        start = dict(self.starts).get(query_id)
        if batch is None or start is None:
            return None
        return Decision(self.sequence, batch, self.incarnation, (), (), start=start)

    def topics_after(self, written: Iterable[TopicPartition], sequence: int) -> tuple[tuple[str, int], ...]:
        """The `topics` of the next decision."""
        now = dict(self.topics) | {topic: sequence for topic, _ in written}
        return tuple(sorted(now.items(), key=lambda one: (-one[1], one[0]))[:KEPT_TOPICS])

    @property
    def participants(self) -> tuple[Participant, ...]:
        """The winners' transactions."""
        return tuple(winner.participant for winner in self.winners)

    @property
    def enders(self) -> tuple[Participant, ...]:
        """The winners' transactions, under the identities that can end them."""
        return tuple(winner.ender for winner in self.winners)

    def without(self, partitions: Collection[int]) -> "Decision":
        """This decision without the winners of some Spark partitions."""
        return self._replace(winners=tuple(w for w in self.winners if w.partition not in partitions))

    def only(self, names: Collection[str]) -> "Decision":
        """This decision with only the winners of these transactional ids."""
        return self._replace(winners=tuple(w for w in self.winners if w.participant.name in names))

    def rows_of(self, partition: int) -> int | None:
        """Rows of one Spark partition; None: not recorded."""
        return self.rows[partition] if partition < len(self.rows) else None

    @property
    def unsealed(self) -> "Decision":
        """This decision as the tasks' reports make it, without holders, what was saved with it, and what it
        says beside its batch. If a batch was sealed twice, these are equal."""
        winners = tuple(w._replace(holder=None) for w in self.winners)
        plain = self._replace(winners=winners, saved=None, ends="", places=(), topics=(), behind=None)
        return plain._replace(older=())


class Stored(NamedTuple):
    """The chunks in the sink's group, and the number of partitions that can hold one. `elsewhere`: other
    topics on whose partitions the group has chunks, if that was asked."""

    anchors: int
    chunks: Chunks
    elsewhere: tuple[str, ...] = ()


def topics_with_chunks(committed: Mapping[TopicPartition, tuple[int, str]]) -> set[str]:
    """The topics on whose partitions these offsets of a group hold decisions."""
    return {topic for (topic, _), (_, text) in committed.items() if text.startswith(DECISION)}


def encode(decision: Decision, sink: Sink, anchors: int) -> dict[int, tuple[int, str]]:
    """The chunks to commit, by number (by_group). If one group has no room, then without `older`, the `ends`
    of what is `behind`, `ends`, and `places`, one after another."""
    room = METADATA_LIMIT - _HEAD_ROOM
    for shorter in _shorter(decision):
        text = json.dumps(_to_json(shorter, sink), separators=(",", ":"))  # ASCII: one unit per character
        pieces = [text[at : at + room] for at in range(0, len(text), room)]
        if len(pieces) <= anchors:
            break
    crc = zlib.crc32(text.encode())
    return {
        at: (decision.sequence, f"{DECISION}{_FORMAT} {at} {len(pieces)} {crc:08x} {piece}")
        for at, piece in enumerate(pieces)
    }


def _shorter(decision: Decision) -> Iterator[Decision]:
    """The decision, and without one after another of what it may be without."""
    yield decision
    yield (less := decision._replace(older=()))
    if less.behind is not None:
        yield (less := less._replace(behind=less.behind._replace(older=(), ends="")))
    yield (less := less._replace(ends=""))
    yield less._replace(places=())


def following(group: str, number: int) -> str:
    """The group that has what does not fit into the ones before it; 0: the sink's group itself."""
    return f"{group}/{number}" if number else group


def by_group(
    group: str, chunks: Chunks, anchors: int
) -> list[tuple[str, dict[TopicPartition, tuple[int, str]]]]:
    """The chunks of `encode` as offsets of the sink's group, and of those that follow it."""
    groups: dict[int, dict[TopicPartition, tuple[int, str]]] = {}
    for at, chunk in chunks.items():
        number, place = divmod(at, anchors)
        groups.setdefault(number, {})[(ANCHOR, place)] = chunk
    return [(following(group, number), offsets) for number, offsets in sorted(groups.items())]


def newest_of(chunks: Chunks) -> int:
    """The sequence number of the newest decision that has a chunk here; 0: there is none."""
    return max((offset for offset, _ in chunks.values()), default=0)


def of_newest(chunks: Chunks, others: Chunks) -> Chunks:
    """Which of `others` belong to the newest decision of `chunks`. A group that was not deleted with the
    sink's may have some of another decision of its number, or of a later one."""

    def whose(offset: int, text: str) -> tuple[int, list[str]]:
        return offset, text.split(" ", 4)[2:4]  # chunks, CRC-32

    newest = newest_of(chunks)
    known = [whose(*chunk) for chunk in chunks.values() if chunk[0] == newest]
    return {at: chunk for at, chunk in others.items() if whose(*chunk) in known}


def lacks_chunks(chunks: Chunks) -> bool:
    """Whether the newest decision has more chunks than these: in further groups, or nowhere."""
    newest = newest_of(chunks)
    heads = [text.split(" ", 4) for offset, text in chunks.values() if offset == newest]
    totals = [int(head[2]) for head in heads if len(head) == 5 and head[2].isdecimal()]
    return max(totals, default=0) > len(heads)


def decode(sink: Sink, chunks: Chunks) -> Decision | None:
    """The newest decision, or None if there never was one. Raises DecisionDamaged if it is not whole.

    An older decision that is whole does not count: it is unknown whether the damaged one was carried out, and
    to continue from the older one could double or lose its batch.
    """
    if not chunks:
        return None
    newest = newest_of(chunks)
    pieces = [_read_chunk(sink, metadata) for offset, metadata in chunks.values() if offset == newest]
    numbers, totals, crcs, texts = zip(*sorted(pieces), strict=True)
    text = "".join(texts)
    whole = len(set(totals)) == len(set(crcs)) == 1 and list(numbers) == list(range(totals[0]))
    if not whole or zlib.crc32(text.encode()) != crcs[0]:
        raise DecisionDamaged(
            f"decision {newest} in consumer group {sink.group} is not whole: chunks "
            f"{sorted(numbers)} of {max(totals)}. {DecisionDamaged.advice}"
        )
    return _from_json(sink, newest, text)


def _read_chunk(sink: Sink, metadata: str) -> tuple[int, int, int, str]:
    head, *parts = metadata.split(" ", 4)
    written = head.removeprefix(DECISION)
    if written == head or not written.isdecimal():
        raise _foreign(sink, metadata)
    if int(written) > _FORMAT:
        raise _later_wrote(sink, f"format {written}, and this one knows {_FORMAT}")
    try:
        number, total, crc, text = parts
        return int(number), int(total), int(crc, 16), text
    except ValueError as error:
        raise _foreign(sink, metadata) from error


def _later_wrote(sink: Sink, what: str) -> DecisionDamaged:
    return DecisionDamaged(
        f"consumer group {sink.group} has a decision that a later version of eoslog has written ({what}). "
        "Nothing was written. Use that version"
    )


def _foreign(sink: Sink, metadata: str) -> DecisionDamaged:
    return DecisionDamaged(
        f"consumer group {sink.group} holds offsets that are no decision of this version "
        f"(metadata {metadata[:40]!r}). {DecisionDamaged.advice}"
    )


def _to_json(decision: Decision, sink: Sink) -> dict[str, Any]:
    workers: dict[str, list[tuple[int, ...]]] = {}
    for partition, (name, identity), holder in decision.winners:
        slot = _namer(sink, decision.names).slot_of(name)
        if slot is None or slot[:2] != (decision.incarnation, _half(decision.names, decision.batch)):
            raise ValueError(f"{name} is not a participant of {decision.batch} in this run of the sink")
        workers.setdefault(slot.worker, []).append(
            (slot.number, partition, *identity, *_held(identity, holder))
        )
    more = {
        "rows": decision.rows,
        "sums": decision.checksums,
        "before": decision.earlier,
        "starts": decision.starts,
        "tokens": decision.tokens.text(),
        "saved": decision.saved,
        "ends": packed(decision.ends),
        "places": to_json(decision.places),
        "names": decision.names,
        "start": decision.start,
        "topics": decision.topics,
        "left": decision.left,
        "within": decision.within.kept,
        "behind": None if decision.behind is None else _to_json(decision.behind, sink),
        "write": None if decision.write_of is None else [decision.write_of],
        "older": to_json(decision.older),
    }
    return {
        "query": decision.batch.query_id,
        "batch": decision.batch.batch_id,
        "digest": decision.batch.digest,
        "run": decision.incarnation,
        "won": workers,
        "wrote": _by_topic(decision.written),
        **{name: value for name, value in more.items() if value},
    }


def _from_json(sink: Sink, sequence: int, text: str) -> Decision:
    try:
        return _of_json(sink, sequence, json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise DecisionDamaged(
            f"decision {sequence} in consumer group {sink.group} makes no sense: {error}. "
            f"{DecisionDamaged.advice}"
        ) from error


def _of_json(sink: Sink, sequence: int, found: Any) -> Decision:
    if more := found.keys() - _FIELDS:
        raise _later_wrote(sink, f"fields {', '.join(sorted(more))}")
    batch = Batch(found["query"], found["batch"], found["digest"])
    incarnation = ProducerIdentity(*found["run"])
    names = str(found.get("names", ""))
    namer, half = _namer(sink, names), _half(names, batch)
    winners = [
        Winner(
            partition,
            Participant(
                namer.participant(ParticipantSlot(incarnation, half, worker, number)),
                ProducerIdentity(producer_id, epoch),
            ),
            _holder(ProducerIdentity(producer_id, epoch), held),
        )
        for worker, slots in found["won"].items()
        for number, partition, producer_id, epoch, *held in slots
    ]
    written = tuple((topic, p) for topic, runs in found["wrote"].items() for p in _numbers(runs))
    rows, checksums = (tuple(map(int, found.get(name, ()))) for name in ("rows", "sums"))
    earlier = tuple(Batch(str(query), int(number), str(d)) for query, number, d in found.get("before", ()))
    tokens = RememberedTokens.read(str(found.get("tokens", "")))
    saved = Saved(*found["saved"]) if "saved" in found else None
    ends, places = unpacked(str(found.get("ends", ""))), from_json(found.get("places", ()))
    start = Start.read(found["start"]) if "start" in found else None
    topics = tuple((str(topic), int(number)) for topic, number in found.get("topics", ()))
    left = Left(*found["left"]) if "left" in found else None
    within = BatchWrites.read(found.get("within", ()))
    behind = _of_json(sink, sequence, found["behind"]) if "behind" in found else None
    write_of = str(found["write"][0]) if "write" in found else None
    details = (rows, checksums, earlier, tokens, saved, ends, places, names, start, topics, left)
    starts = tuple((str(query), Start.read(one)) for query, one in found.get("starts", ()))
    more = (within, behind, write_of, from_json(found.get("older", ())), starts)
    return Decision(sequence, batch, incarnation, tuple(sorted(winners)), written, *details, *more)


def packed(text: str) -> str:
    """The text, shorter, in characters of base64."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode() if text else ""


def unpacked(text: str) -> str:
    """What `packed` was given. Raises ValueError, zlib.error."""
    return zlib.decompress(base64.b64decode(text)).decode() if text else ""


def _held(identity: ProducerIdentity, holder: ProducerIdentity | None) -> tuple[int, ...]:
    """The holder in short: empty, how many epochs it is after the writer, or its producer id and epoch."""
    if holder is None:
        return ()
    if holder.producer_id == identity.producer_id:
        return (holder.epoch - identity.epoch,)
    return tuple(holder)


def _holder(identity: ProducerIdentity, held: list[int]) -> ProducerIdentity | None:
    if not held:
        return None
    return _later(identity, *held) if len(held) == 1 else ProducerIdentity(*held)


def _later(identity: ProducerIdentity, epochs: int) -> ProducerIdentity:
    return identity._replace(epoch=identity.epoch + epochs)


def _namer(sink: Sink, names: str) -> Sink:
    return Sink(names) if names else sink


def _half(names: str, batch: Batch) -> int:
    """The parity in the winners' names. A sink that only names them does so for one write, its batch 0."""
    return parity(0 if names else batch.batch_id)


def _by_topic(written: Iterable[TopicPartition]) -> dict[str, list[int | list[int]]]:
    """Each topic's partitions: numbers, and the first and last one of each run."""
    topics: dict[str, list[list[int]]] = {}
    for topic, partition in sorted(set(written)):
        runs = topics.setdefault(topic, [])
        if runs and runs[-1][1] == partition - 1:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition])
    return {topic: [one if one[0] < one[1] else one[0] for one in runs] for topic, runs in topics.items()}


def _numbers(runs: Iterable[int | list[int]]) -> Iterator[int]:
    for one in runs:
        yield from (one,) if isinstance(one, int) else range(one[0], one[1] + 1)
