"""What the sink's log shows of the batches whose places the checkpoint notes."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from eoslog.client.admin.transaction_states import ONGOING, list_transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.retry import retrying
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.checkpoint_view import FRESH_SECONDS, CheckpointView, has_rested
from eoslog.connector.checkpoint.noted_places import NOTED_PLACES, NotedPlaces, Waiting
from eoslog.connector.checkpoint.start_facts import Completed, RowsFound
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.places import Place, Places, Seen, by_partition
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.run.places_in_log import followed, lacking, look_at
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.names_by_sink import sink_of
from eoslog.protocol.producer_identity import NOBODY, ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition


def completed_in(
    cluster: Cluster, view: CheckpointView, since: int | None, last: Decision | None, sink: str
) -> Completed:
    """What is known of the checkpoint's completed batches, if its former `sink` has decided `last`."""
    decided = None if last is None else last.last_of(view.batch.query_id)
    rows = rows_found(cluster, view, decided, last, sink=sink)
    return Completed(view.completed, since, has_rested(view, rows.newest), rows)


def rows_found(
    cluster: Cluster,
    view: CheckpointView,
    decided: Batch | None,
    last: Decision | None = None,
    before: Sequence[Decision] = (),
    *,
    sink: str = "",
    again: Collection[ProducerIdentity] = (),
    topics: Collection[str] = (),
) -> RowsFound:
    """Hold the places that the checkpoint notes against the log; if it is new, those of the last decisions
    `before` it, at which it may go on; none: of `last`. `decided`: the query's last batch that the sink knows
    to be decided; None: its last decision, `last`, is another query's. `sink`: whose rows must not be visible
    behind `last`; "": that is not asked. `again`: whose rows of its last batch are written again. `topics`:
    to which the query writes now; empty: its rows name them, or that is not known. What was aborted of a
    batch that runs again later, in a restored checkpoint, is told when it runs. Raises KafkaError,
    RetriesExhausted, CheckpointUnreadable."""
    completed, note = view.completed, _as_decided(NotedPlaces.read(view.checkpoint), decided, last)
    noted, before = note.batches, before or (() if last is None else (last,))
    if decided is None and completed is None and before:
        gone = _said(lacking(cluster, reversed(places_of_queries(before))))
        behind_last = undecided_behind(cluster, sink, last)
        number = (before[0].of_query or before[0]).batch.batch_id
        return RowsFound(batch=number, lacks=gone, undecided=behind_last)
    done = max(-1 if completed is None else completed, -1 if decided is None else decided.batch_id)
    known = decided is not None and decided.batch_id >= note.newest
    lost = undecided_behind(cluster, sink, last, is_known=known) if noted or known else ()
    if not noted:
        found = RowsFound(batch=done, lacks=_said(lacking(cluster, reversed(note.older))), undecided=lost)
        return found if known or completed is None else _after_edit(cluster, found, note, sink, topics)
    newest, places = noted[0]
    if completed is None and not known:
        return RowsFound()
    if completed is not None and not known and newest > completed:
        noted = noted[1:]  # it was not decided: it is to be written
    if not noted:
        return RowsFound(newest - 1, done, _said(lacking(cluster, reversed(note.older))))
    batch, places = next((one for one in noted if one[1]), noted[0])
    behind = () if known else _behind(cluster, note, sink, topics)
    had = [place for number, found in noted for place in found if number < batch or place.writer not in again]
    shown = had if batch <= view.batch.batch_id else ()
    lacks = _said(lacking(cluster, dict.fromkeys((*had, *note.up_to(batch))), visible=shown))
    is_ours = decided is not None or last is None or last.of_query is None
    proven = _newest_visible(cluster, noted, decided) if is_ours and not known else None
    unseen = decided is None and note.names_no_topic(topics)
    return RowsFound(noted[0][0], batch, lacks, bool(places), behind, proven, lost, unseen)


def _after_edit(
    cluster: Cluster, found: RowsFound, note: NotedPlaces, sink: str, topics: Collection[str]
) -> RowsFound:
    """The same where no batch is noted since an edit, or on another cluster, and no decision is known."""
    unseen = note.waiting is not None and note.names_no_topic(topics)
    return found._replace(followed=_behind(cluster, note, sink, topics), unseen=unseen)


def _behind(cluster: Cluster, note: NotedPlaces, sink: str, topics: Collection[str]) -> tuple[str, ...]:
    """Where rows follow that may be of batches which the note does not know: in every topic that it names, of
    any sink, and of this one in others, to which the query writes. What was removed counts where the note
    says that rows would be; dead letters there need not have been. `topics`: see rows_found()."""
    others, only = note.without_place(topics), sink or None
    own = note.waiting.topic if note.waiting else ""
    waiting = {own: others.pop(own)} if own in others else {}
    named = [*followed(cluster, note.everywhere), *followed(cluster, (), only, waiting=waiting)]
    return (*named, *followed(cluster, (), only, NOBODY, waiting=others))


def _as_decided(note: NotedPlaces, decided: Batch | None, last: Decision | None) -> NotedPlaces:
    """The note with the places that the decision has of its newest batch: another driver's, which was
    replaced before it could decide, are not those."""
    made = None if last is None else last.of_query
    if made is None or made.batch != decided or not made.places or note.newest != made.batch.batch_id:
        return note
    return note._replace(batches=((note.newest, made.places), *note.batches[1:]))


def correct(checkpoint: Checkpoint, decided: Batch | None, last: Decision | None) -> None:
    """Note the places that the decision has, before the next batch takes them from the note. Raises
    CheckpointUnreadable."""
    note = NotedPlaces.read(checkpoint)
    if (made := _as_decided(note, decided, last)) != note:
        made.write(checkpoint)


def _newest_visible(
    cluster: Cluster, noted: Sequence[tuple[int, Places]], decided: Batch | None
) -> int | None:
    """The newest of the noted batches, the newest first, that the sink does not know to be decided, and whose
    rows are all committed; of one without rows, those of the last one that had some. None: there is none."""
    last = -1 if decided is None else decided.batch_id
    for at, (number, _) in enumerate(noted):
        places = next((found for _, found in noted[at:] if found), ())
        if number > last and set(look_at(cluster, places).values()) == {Seen.COMMITTED}:
            return number
    return None


def undecided_behind(
    cluster: Cluster, sink: str, last: Decision | None, *, is_known: bool = False
) -> tuple[str, ...]:
    """Where rows of the sink are visible behind those of its last decision. `is_known`: this is the last one
    that the checkpoint knows of, so nothing shows that there were others."""
    if last is None or not sink:
        return ()
    since = last.incarnation if is_known else None
    return tuple(followed(cluster, (*places_of_queries([last]), *last.everywhere), sink, since))


def behind_the_first(
    cluster: Cluster, checkpoint: Checkpoint, sink: str, topics: Collection[str]
) -> tuple[str, ...]:
    """Where rows of the sink are visible although it knows of no decision and the checkpoint of no batch that
    is done: behind those of a first batch that was not decided, or since the query's first start. If that
    was so long ago that the cluster may have forgotten decisions, also where rows were removed since. Raises
    KafkaError, RetriesExhausted, CheckpointUnreadable."""
    note = NotedPlaces.read(checkpoint)
    waiting = note.without_place(topics)
    rested = time.time() - max(waiting.values(), default=0) / 1000 > FRESH_SECONDS
    return tuple(followed(cluster, note.everywhere, sink, NOBODY, waiting=waiting, rested=rested))


def is_unseen(checkpoint: Checkpoint, topics: Collection[str]) -> tuple[bool, bool]:
    """Whether no topic is known in which rows of the query's first batches would be, and whether it started
    so long ago that the cluster may have forgotten decisions since. Raises CheckpointUnreadable."""
    note = NotedPlaces.read(checkpoint)
    since = 0 if note.waiting is None else note.waiting.since_ms / 1000
    return note.names_no_topic(topics), time.time() - since > FRESH_SECONDS


def rows_behind(
    cluster: Cluster, checkpoint: Checkpoint, batch: int, sink: str, topics: Collection[str] = ()
) -> RowsFound:
    """What follows in the log behind the noted places of this batch, the newest. `topics`: see rows_found().
    Raises KafkaError, RetriesExhausted, CheckpointUnreadable."""
    return RowsFound(batch=batch, followed=_behind(cluster, NotedPlaces.read(checkpoint), sink, topics))


def places_of_queries(before: Iterable[Decision]) -> Places:
    """Where rows of the queries are that have made these decisions of their sinks."""
    return tuple(place for made in before for place in (made.of_query or made).everywhere)


def unnumber(view: CheckpointView, topics: Collection[str] = ()) -> None:
    """Note where rows are, and of no batch. `topics`: to which the query writes; empty: to any. Raises
    CheckpointUnreadable."""
    note = NotedPlaces.read(view.checkpoint)
    kept = note.unnumbered(view.batch.batch_id)
    if topics:
        kept = kept.without([place for place in kept.older if place.topic not in topics])
    if not kept.everywhere and kept.waiting is None:  # rows of the first batch were the only ones
        view.checkpoint.forget(NOTED_PLACES)
    elif kept != note:
        kept.write(view.checkpoint)


def note_moved(checkpoint: Checkpoint, topic: str) -> None:
    """Note, for another cluster, what later rows are younger than, and no places. `topic`: as in Waiting.
    Raises CheckpointUnreadable."""
    moved = NotedPlaces.read(checkpoint).moved(topic)
    if moved == NotedPlaces():
        checkpoint.forget(NOTED_PLACES)
    else:
        moved.write(checkpoint)


def visible_since(
    cluster: Cluster, checkpoint: Checkpoint, sink: str, topics: Collection[str] = ()
) -> tuple[str, ...]:
    """Where rows of the sink are on another cluster than the one of the noted places that are younger than
    those. `topics`: to which the query writes. Raises KafkaError, RetriesExhausted, CheckpointUnreadable."""
    there = NotedPlaces.read(checkpoint).elsewhere(topics)
    return tuple(followed(cluster, (), sink, NOBODY, waiting=there))


def wait_for_rows(view: CheckpointView, topic: str | None) -> bool:
    """Note when a query started of which no rows are noted. Returns whether an earlier start has noted that,
    or where rows are. Raises CheckpointUnreadable."""
    if NotedPlaces.read(view.checkpoint) != NotedPlaces():
        return True
    NotedPlaces(waiting=Waiting(topic or "", int(time.time() * 1000))).write(view.checkpoint)
    return False


def places_of_planned(view: CheckpointView) -> Places:
    """Where rows of the batch are that the next start writes, if an earlier run was about to decide it.
    Raises CheckpointUnreadable."""
    batch = view.batch.batch_id
    return () if view.completed == batch else dict(NotedPlaces.read(view.checkpoint).batches).get(batch, ())


def seen_of_planned(cluster: Cluster, view: CheckpointView, decided: Batch | None) -> dict[Place, Seen]:
    """What the log shows there. `decided`: the query's last batch that the sink knows to be decided; if that
    is an earlier one, what was removed since was not decided. Empty: the batch is decided. Raises KafkaError,
    RetriesExhausted, CheckpointUnreadable."""
    if decided is not None and decided.batch_id >= view.batch.batch_id:
        return {}
    seen = look_at(cluster, places_of_planned(view))
    return {place: how for place, how in seen.items() if decided is None or how is not Seen.REMOVED}


def places_decided(checkpoint: Checkpoint, decided: Batch | None, *, again: bool) -> tuple[Places, Places]:
    """Where rows are of batches that the checkpoint notes: of those that the sink has decided, and of others.
    `again`: rows of its last batch are lost, and are written again: it is neither."""
    note, newest = NotedPlaces.read(checkpoint), -1 if decided is None else decided.batch_id
    others = tuple(place for batch, places in note.batches if batch > newest for place in places)
    left_out = {*others, *(dict(note.batches).get(newest, ()) if again else ())}
    return tuple(place for place in note.everywhere if place not in left_out), others


def open_of_visible(cluster: Cluster, checkpoint: Checkpoint, decided: Batch | None) -> Places:
    """Where rows are open of batches that the sink does not know to be decided, although they are: a part of
    theirs, or of a later one's, is visible. Raises KafkaError, RetriesExhausted, CheckpointUnreadable."""
    newest = -1 if decided is None else decided.batch_id
    noted = [one for one in NotedPlaces.read(checkpoint).batches if one[0] > newest]
    seen = {batch: look_at(cluster, places) for batch, places in noted}
    visible = max((batch for batch, how in seen.items() if Seen.COMMITTED in how.values()), default=-1)
    upto = [how for batch, how in seen.items() if batch <= visible]
    return tuple(place for found in upto for place, how in found.items() if how is Seen.OPEN)


def not_of_others(cluster: Cluster, sink: str, places: Places, *, commit: bool) -> Places:
    """The places without those of producer ids that are another name's now: brokers that were put back to an
    older copy give ids again, and what is open there is not the sink's. `commit`: the places may be of a
    former name of the sink; so an id counts as another's if a coordinator has it open, and comes back to it.
    Raises KafkaError, RetriesExhausted."""
    ids, states = sorted({place.writer.producer_id for place in places}), _OPEN if commit else ()
    found = list_transactions(cluster, "", states, producer_ids=ids) if ids else []
    others = {one.producer_id for one in found if sink_of(one.transactional_id) != sink}
    return tuple(place for place in places if place.writer.producer_id not in others)


_OPEN = (ONGOING, "PrepareCommit", "PrepareAbort")


def _said(lacks: Mapping[Place, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lacks.values()))


def forget_lacking(cluster: Cluster, checkpoint: Checkpoint) -> None:
    """Forget where rows were that are gone, as was accepted: a later start does not ask again. Raises
    KafkaError, RetriesExhausted, CheckpointUnreadable."""
    note = NotedPlaces.read(checkpoint)
    note.without(lacking(cluster, note.everywhere, visible=note.in_batches)).write(checkpoint)


_leaders: WeakKeyDictionary[Cluster, dict[str, dict[TopicPartition, int]]] = WeakKeyDictionary()
"""By sink the leaders' epochs of partitions that its last batches wrote to."""
_NO_TOPIC = -1
"""The epoch of a partition whose topic is gone, or of brokers that tell none."""


def lost_with_a_leader(cluster: Cluster, sink: str, earlier: Places, now: Places) -> str:
    """What the log has not any more of `earlier` places, where another leader was elected since the sink's
    batch before; "": all is there. Later rows of anybody would hide that from the next start. `now`: of this
    batch. Raises KafkaError, RetriesExhausted."""
    known = _leaders.setdefault(cluster, {}).setdefault(sink, {})
    there = [one for one in (*earlier, *now) if known.get((one.topic, one.partition)) != _NO_TOPIC]
    forgotten = sorted({one.topic for one in there if cluster.remembered(one.topic) is None})
    absent = _absent(cluster, forgotten) if forgotten else ()  # metadata is old, or a broker was lost
    epochs = {
        (name, number): epoch
        for name in {one.topic for one in there}
        for number, epoch in _epochs(cluster, name).items()
    }
    elected = [one for one in earlier if _is_elected(known, epochs, (one.topic, one.partition))]
    known |= {where: epochs[where] for where in by_partition(there) if where in epochs}
    known |= {where: _NO_TOPIC for where in by_partition(there) if where[0] in absent}
    return "; ".join([*lacking(cluster, elected).values()][:3]) if elected else ""


def _absent(cluster: Cluster, topics: Sequence[str]) -> set[str]:
    """Ask about the topics. Returns those that are not there."""
    found = retrying(cluster, "Metadata of the sink's topics", lambda: cluster.metadata(topics))
    return {name for name, code in found.errors.items() if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def _epochs(cluster: Cluster, topic: str) -> Mapping[int, int]:
    known = cluster.remembered(topic)
    return {} if known is None else known.epochs


def _is_elected(
    known: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int], where: TopicPartition
) -> bool:
    return where in known and known[where] != epochs.get(where, known[where])
