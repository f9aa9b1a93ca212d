"""Compares a query's checkpoint, the sink's decision and the group when the query starts.

Pure rules: they take what was read, and return warnings or raise an error that stops the query before a row
is written. plan.py (`losses`) compares offsets with the log, because that is done for every micro-batch.
`docs/troubleshooting.md` says what to do about each error.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from eoslog.connector.checkpoint.accepted_differences import to_accept
from eoslog.connector.checkpoint.spark_logs import Planned, offsets_of, reading_only
from eoslog.connector.commit.faults import (
    CheckpointMismatch,
    CheckpointOlder,
    DecisionGone,
    RowsGone,
    SinkChanged,
    StartsElsewhere,
    TakenOver,
)
from eoslog.connector.commit.places import Place, Seen, ended
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.group_notes import Note, NotedOffset
from eoslog.connector.offsets.offsets import EARLIEST, Offsets, TakenFrom, to_json
from eoslog.connector.offsets.plan import recreated
from eoslog.protocol.topic_partitions import TopicPartition


def check_given(old: str, new: str, decided: Batch | None, batch: Batch, accepted: Collection[str]) -> None:
    """Check a change of transactional.id from `old` to `new`: `old` must not have decided a batch that Spark
    has not noted as done.

    `decided`: the last batch of the query that `old` has decided. Raises SinkChanged unless that is accepted.
    """
    if decided is None or decided.batch_id < batch.batch_id:
        return
    if (word := f"sink-changed:{old}:{decided.batch_id}") in accepted:
        return
    raise SinkChanged(
        f"{decided} was decided by the sink {old}, Spark has not noted it as done and would write {batch} "
        f"again, and transactional.id is {new} now. Start the query once with transactional.id={old}: it "
        "finishes the batch; then change the name. If this is a copy of that query's checkpoint, and what "
        f"it has written is to be written here as well, set {to_accept(word, accepted)}"
    )


def check_unnoted(
    sink: str, batch: Batch, completed: int | None, decided: Batch | None, accepted: Collection[str]
) -> None:
    """Check a batch that an earlier run has planned, in a checkpoint that does not say which sink got its
    batches: `sink` must know them.

    A checkpoint of this sink has said so since its first batch: so it was copied without eoslog's notes, or
    another sink got the batches. `completed`: the newest batch in Spark's commit log; `decided`: the query's
    last batch that the sink has decided. Raises SinkChanged unless that is accepted.
    """
    if completed is None or (decided is not None and decided.batch_id >= completed):
        return
    if (word := f"sink-unknown:{batch.batch_id}") in accepted:
        return
    raise SinkChanged(
        f"sink {sink}: {batch} was planned by an earlier run, the checkpoint does not say which sink got its "
        "batches (it has no eoslog/sink), and this sink does not know them. Another sink may have decided "
        "it, and its rows would be written again. Nothing was written. If the checkpoint is a copy, copy it "
        "again with its folder eoslog; or start the query once as it was, with its former transactional.id "
        "or its former sink, which finishes the batch. If these rows may be there twice, set "
        f"{to_accept(word, accepted)}"
    )


def check_taken_over(
    sink: str,
    batch: Batch,
    group: str | None,
    committed: Mapping[TopicPartition, NotedOffset],
    stands: Offsets,
    accepted: Collection[str],
    *,
    is_left: bool = False,
) -> None:
    """Check that no other query has taken over this one's sink: this one must not continue then.

    `stands`: this query's offsets. `committed`: if the sink has committed other offsets for another query,
    that query has taken over. `is_left`: this query has another sink now, so it would not stop the other
    query; then the other query has taken over even if it has only begun, at this query's offsets. Raises
    TakenOver unless that is accepted.
    """
    moved = {
        tp: (found.offset, found.note)
        for tp, found in committed.items()
        if found.note and found.note.sink == sink and found.note.query != batch.query_id
    }
    moved = {tp: found for tp, found in moved.items() if is_left or found[0] != stands.get(tp)}
    if not moved:
        return
    said = _listed((tp, f"{at}, this query stands at {stands.get(tp)}") for tp, (at, _) in moved.items())
    by = next(note.query for _, note in moved.values())
    why = f"group {group} is where that query has written to ({said})"
    _refuse_taken_over(sink, batch, group, by, why, accepted)


def check_followed(
    sink: str, batch: Batch, group: str | None, by: str | None, accepted: Collection[str]
) -> None:
    """Check that no other query has decided in this one's sink since this one did: it has taken over, also
    if it stands where this one stands, or if others have moved the group. `by`: its id, if there is one.
    Raises TakenOver unless that is accepted."""
    if by is not None and group is not None:  # without a group nobody has handed it over
        why = "that query has made the sink's last decision"
        _refuse_taken_over(sink, batch, group, by, why, accepted)


def _refuse_taken_over(
    sink: str, batch: Batch, group: str | None, by: str, why: str, accepted: Collection[str]
) -> None:
    """Raise TakenOver unless that is accepted. `why`: what shows that the query `by` has taken over. The word
    has the batch that is to be written all the same: it is no word for a later start."""
    if (word := f"taken-over:{by}:{batch.batch_id}") in accepted:
        return
    names = f"transactional.id={sink}"
    if group != Sink(sink).offsets_group:
        names = f"kafka.group.id={group} and {names}"
    raise TakenOver(
        f"sink {sink}: query {by} has taken the place of query {batch.query_id}: {why}. {batch} would write "
        "rows again. Nothing was written. Stop this query for good; or, to go back from the other one to "
        f"this, start this one with a new checkpoint, {names} in source and sink, and "
        "startingOffsets=committed. If these are two "
        "queries, and this one is to write those rows as well, give each a transactional.id and a "
        f"kafka.group.id of its own, and set {to_accept(word, accepted)}"
    )


Places = Mapping[TopicPartition, Mapping[str, int]]
"""By partition the offset of each source that reads it, by the source's name."""


class RowsFound(NamedTuple):
    """What the log shows of the batches whose places the checkpoint notes; if it is new, of the sink's last
    one. `newest`: the last batch that the sink got; None: the checkpoint does not say. `batch`: the last one
    with rows that is done, and `lacks`: what of it, or of earlier ones, the log does not have, a text for
    each place. `any`: whether a batch had rows, or may have.
    `followed`: where rows of transactions follow, if the sink knows no later decision. `proven`: the newest
    batch that the sink does not know to be decided, and all of whose rows the log shows to be committed.
    `undecided`: where rows of the sink are visible behind those of its last decision: only decided ones
    become visible, so the cluster has lost their decisions."""

    newest: int | None = None
    batch: int | None = None
    lacks: tuple[str, ...] = ()
    any: bool = True
    followed: tuple[str, ...] = ()
    proven: int | None = None
    undecided: tuple[str, ...] = ()


class Completed(NamedTuple):
    """The checkpoint's batches that a sink got. `newest`: the newest completed one. `since`: the first that
    the sink got; None: the checkpoint does not say. `rested`: whether the newest is so old that the cluster
    may have forgotten its decision. `rows`: what the log has of them."""

    newest: int | None
    since: int | None
    rested: bool
    rows: RowsFound = RowsFound()


class OtherSink(NamedTuple):
    """What another sink has decided last, and the topics that its rows went to."""

    batch: Batch
    topics: tuple[str, ...] = ()


class StartFacts(NamedTuple):
    """The contents of checkpoint, decision and group when a run of the sink begins.

    `batch`: the batch to write; `ends`: its end offsets in the sources. `begins`: where each source begins
    in it, if it is the first and its ends say that. `completed`: the newest batch in Spark's commit log.
    `decided`: the sink's last decided batch, of this or another query. `ended`: the digest and end offsets
    in the checkpoint of the decided batch, if it is this query's and still kept. `committed`: the group's
    offsets, for the partitions of `ends` and `ended` (empty without `group`). `taken`: the sinks and groups
    whose offsets the source has begun with. `since`: the first batch that was given to this sink, None if
    the checkpoint does not say. `rested`: whether the last completed batch is so old that the cluster may
    have forgotten its decision. `accepted`: the words of start.accepted. `left_state`: the sink's last
    query has saved its state. `followed_by`: which query has decided in this sink since this one did.
    `left`: the plan of the batch that the sink has decided last; None: not recorded. `without_topics`: the
    batch's sources that read no topics. `others`: what other sinks have decided last at whose offsets the
    query may begin. `rows`: what the log shows of the batches whose places the checkpoint notes. `unread`:
    see unread(), with where their log begins. `remade`: topics that were made anew since the last decision.
    `cut`: partitions whose log was cut below where that batch or the group ended, and where it differs.
    `sequence`: of the sink's last decision, 0: none. `went_to`: where the sink's last query has written, if
    this one writes to another topic.
    """

    sink: str
    batch: Batch
    ends: Offsets
    begins: Places
    completed: int | None
    decided: Batch | None
    ended: tuple[str, Offsets] | None
    group: str | None
    committed: Mapping[TopicPartition, NotedOffset]
    taken: Collection[TakenFrom] = ()
    since: int | None = None
    rested: bool = False
    accepted: Collection[str] = ()
    left_state: bool = False
    followed_by: str | None = None
    left: Planned | None = None
    without_topics: Collection[str] = ()
    others: Mapping[str, OtherSink] = MappingProxyType({})
    rows: RowsFound = RowsFound()
    unread: Mapping[TopicPartition, int | None] = MappingProxyType({})
    remade: Collection[str] = ()
    cut: Mapping[TopicPartition, int] = MappingProxyType({})
    sequence: int = 0
    went_to: str | None = None

    def replaces(self, sink: str) -> str:
        """The word of start.accepted for a query that begins at another sink's offsets, and takes its place.
        It is another one for the next new checkpoint: a query without a name has a new id then."""
        of = self.number if self.sink != self.batch.query_id else self.batch.query_id[:8]
        return f"offsets-of:{sink}:{of}"

    @property
    def number(self) -> int:
        """In the words of start.accepted that let a query begin anew: it is another one as soon as the query
        has written a batch. The last decision's; without one, the newest batch that the group notes."""
        return self.sequence or max((f.note.batch for f in self.committed.values() if f.note), default=0)

    def begins_at(self, place: TopicPartition) -> int | None:
        """Where the query begins in a partition: its sources' lowest place. None: they do not say it."""
        return min(self.begins[place].values()) if place in self.begins else None

    @property
    def at_group(self) -> bool:
        """Whether the query begins at the group's offsets."""
        stands = {tp: found.offset for tp, found in self.committed.items()}
        return bool(stands) and all(self.begins_at(tp) == at for tp, at in stands.items())

    @property
    def anew(self) -> Collection[str]:
        """Sources that begin anew in a new checkpoint, whatever the sink has written of them: no group has
        their offsets."""
        return self.without_topics if self.left is not None and self.left.without_topics() else ()

    @property
    def left_at(self) -> Places | None:
        """Where each source ended in the batch that the sink has decided last, or left a partition before
        it, or where its log was cut since; None: not recorded. Topics that were made anew since are left
        out."""
        if self.left is None:
            return None
        ends = self.left.each_left() | self.left.each_end()
        return {
            tp: {name: min(at, self.cut.get(tp, at)) for name, at in each.items()}
            for tp, each in ends.items()
            if tp[0] not in self.remade
        }

    @property
    def done(self) -> Completed:
        """The batches that are completed, and what is known of them."""
        return Completed(self.completed, self.since, self.rested, self.rows)

    @property
    def ours(self) -> int | None:
        """The last batch of this query that the sink has decided."""
        known = self.decided is not None and self.decided.query_id == self.batch.query_id
        return self.decided.batch_id if known and self.decided else None

    @property
    def last(self) -> int:
        """`ours` as a number; -1: none."""
        return -1 if self.ours is None else self.ours

    @property
    def is_new(self) -> bool:
        """Whether the checkpoint is new: no batch is completed in it, and the sink has decided none of it."""
        return self.completed is None and self.batch.batch_id == 0 and self.ours is None


def check_story(story: StartFacts) -> list[str]:
    """Compare everything. Returns warnings about differences that may be intended.

    Raises DecisionGone, CheckpointOlder, CheckpointMismatch, StartsElsewhere, TakenOver.
    """
    _check_notes(story)
    _check_decided(story)
    if story.is_new:
        return _new_checkpoint(story)
    stands = story.ended[1] if story.ended else {}
    check_taken_over(story.sink, story.batch, story.group, story.committed, stands, story.accepted)
    check_followed(story.sink, story.batch, story.group, story.followed_by, story.accepted)
    ours = None if story.ours is None or story.decided is None else story.decided
    check_completed(story.sink, story.done, ours, story.accepted, story.sequence)
    return [*_missing_decisions(story), *_moved_group(story)]


def _check_notes(story: StartFacts) -> None:
    """Compare with the notes at the group's offsets: a batch that is noted there is written, and decided but
    for one of at_least_once."""
    notes = [found.note for found in story.committed.values() if found.note]
    claims = [note for note in notes if note.query == story.batch.query_id]
    newest = max(claims, key=lambda note: note.batch, default=None)
    if newest is None or newest.batch < story.batch.batch_id or newest.batch <= story.last:
        return
    here = {tp: found.offset for tp, found in story.committed.items() if found.note == newest}
    if not newest.decided and all(story.ends.get(tp) == at for tp, at in here.items()):
        return  # killed before Spark's note: this batch of at_least_once is written twice
    said = (
        f"group {story.group} holds the source offsets that the sink {newest.sink} committed with batch "
        f"{newest.batch} of query {newest.query}"
    )
    if not newest.decided:
        raise CheckpointOlder(
            f"sink {story.sink}: {said}, under at_least_once, and the checkpoint's batch "
            f"{story.batch.batch_id} ends elsewhere: it was set back, and rows would be written again. "
            "Nothing was written. Bring the right checkpoint back. If rows may be there twice, run the query "
            "with at_least_once until it has read what it had read"
        )
    if newest.batch > story.batch.batch_id:
        raise CheckpointOlder(
            f"sink {story.sink}: {said}, and the checkpoint is at batch {story.batch.batch_id}. "
            f"{CheckpointOlder.advice}"
        )
    raise DecisionGone(
        f"sink {story.sink}: {said}, so its rows are written; but the sink {story.sink} knows no such "
        f"decision, and would write them again. {DecisionGone.advice}"
    )


def _check_decided(story: StartFacts) -> None:
    """Check that the last decided batch has the same source offsets in the checkpoint."""
    decided = story.decided
    if decided is None or story.ours is None or story.ended is None:
        return
    digest, _ = story.ended
    if not decided._replace(digest=digest).repeats(decided):
        raise CheckpointMismatch(
            f"sink {story.sink}: the sink has decided {decided} with other source offsets than the "
            f"checkpoint has for it, and the checkpoint is now at batch {story.batch.batch_id}. "
            f"{CheckpointMismatch.advice}"
        )


def _new_checkpoint(story: StartFacts) -> list[str]:
    """Check where a query with a new checkpoint begins. To begin at the group's offsets is exact if this sink
    has committed them (a hand-over): no other driver owns the sink any more, so none can change them."""
    _check_taken(story)
    if story.left_state and (word := f"{WORD_STATE}:{story.number}") not in story.accepted:
        raise StartsElsewhere(
            f"sink {story.sink}: the checkpoint is new, and the last query of this transactional.id has "
            "saved its state (state.topic), which this one would begin without. Nothing was written. Restore "
            "the checkpoint before the start, with eoslog checkpoint restore or restore_checkpoint, into an "
            "empty folder. If this query is to begin without state, set "
            f"{to_accept(word, story.accepted)}"
        )
    if takes_place(story):
        _check_rows(story.sink, story.rows, story.accepted)  # first: who goes elsewhere is not asked again
        _check_topic(story)
    if _goes_on(story):
        _check_undecided(story)
        return _made_anew(story)
    if story.at_group:
        _from_the_group(story)
        if odd := _not_where_it_ended(story):
            return _begins_elsewhere(story, odd, at_group=True)
        _check_undecided(story)
        return _made_anew(story)
    if story.unread and story.decided is not None:
        return _begins_elsewhere(story, f"it begins behind rows that no batch has read ({_unread(story)})")
    if any(found.note for found in story.committed.values()):
        said = _listed(
            (tp, f"{found.offset}, this query's first batch begins at {_known(story.begins_at(tp))}")
            for tp, found in story.committed.items()
        )
        return _begins_elsewhere(
            story,
            f"group {story.group} holds source offsets of an earlier query ({said}): rows may be written "
            "again, or left out",
        )
    if story.decided is not None:
        return _begins_elsewhere(
            story, f"the sink has written {story.decided}: what that query has read may be written again"
        )
    return []


def _check_topic(story: StartFacts) -> None:
    """Check that a query that goes on where the sink's last one ended writes to the same topic."""
    if story.went_to is None or (word := f"{WORD_NEW}:{story.number}") in story.accepted:
        return
    raise StartsElsewhere(
        f"sink {story.sink}: the checkpoint is new, and this query goes on where the sink's last query ended "
        f"({story.decided}), which has written to {story.went_to}: what that one has read would be missing "
        "in this one's topic. Nothing was written. Is it another query, or one on a copied checkpoint? Give "
        "this one a transactional.id and a kafka.group.id of its own, and startingOffsets of its own on "
        f"another new checkpoint. If the topic was changed, set {to_accept(word, story.accepted)}"
    )


def takes_place(story: StartFacts) -> bool:
    """Whether a new checkpoint goes on where others have ended: their rows count as this query's."""
    return story.at_group or _goes_on(story)


def _goes_on(story: StartFacts) -> bool:
    """Whether each source begins where the sink's last decided batch ended in it, whatever the group says;
    and at the beginning of what that one did not read."""
    left_at = story.left_at or {}
    read = set() if story.left is None else story.ends.keys() & _read_by(story.left)
    later = [tp for tp, found in story.committed.items() if found.note and not found.note.decided]
    return (
        bool(read)
        and not (story.anew or story.unread)
        and read <= story.begins.keys()
        and all(_same(story.begins[tp], left_at[tp]) for tp in read & left_at.keys())
        and all(story.committed[tp].offset == story.begins_at(tp) for tp in later)
    )


def unread(left: Planned | None, noted: Collection[TopicPartition], now: Planned) -> Offsets:
    """Partitions that a new checkpoint does not read from offset 0, although no batch has read them: `left`,
    the last batch of the sink, did not, nor, if it is not recorded, have they a note in the group (`noted`).
    A query that has begun reads what is new from its beginning. Empty: no query of these topics has begun."""
    known, begins = set(noted), now.each_beginning()
    if left is not None:
        known = _read_by(left)
    if not {topic for topic, _ in known} & {topic for topic, _ in begins}:
        return {}
    known -= {tp for tp in known if tp[0] in remade(left, now)}
    return {tp: at for tp, each in begins.items() if tp not in known and (at := max(each.values())) > 0}


def _read_by(left: Planned) -> set[TopicPartition]:
    """The partitions that a batch has read, or that its query had read before."""
    return {*left.each_end(), *left.each_left()}


def remade(left: Planned | None, now: Planned) -> Collection[str]:
    """Topics that have another id now than in the last batch of the sink."""
    return () if left is None else recreated(left.left_ids() | left.topic_ids(), now.topic_ids())


def _not_read(story: StartFacts, place: TopicPartition) -> str:
    first = story.unread[place]
    log = "where its log begins is not known" if first is None else f"its log begins at {first}"
    return f"{_ends(story.begins[place])}, and {log}"


def _unread(story: StartFacts) -> str:
    return _listed((tp, _not_read(story, tp)) for tp in story.unread)


def _made_anew(story: StartFacts) -> list[str]:
    """Warn of topics that are read from their beginning, as they were made anew since the last decision."""
    topics = sorted({topic for topic, _ in story.begins} & set(story.remade))
    if not topics:
        return []
    return [
        f"sink {story.sink}: {', '.join(topics)} was deleted and created again since {story.decided}. It is "
        "read from its beginning, and what nobody had read of the former one is gone. See "
        "troubleshooting.md#dataloss"
    ]


def _same(begins: Mapping[str, int], ended: Mapping[str, int]) -> bool:
    """Whether sources begin where others ended. Their names count if these ended in several places."""
    if len({*ended.values()}) > 1:
        return begins == ended
    return {*begins.values()} == {*ended.values()}


def _not_where_it_ended(story: StartFacts) -> str | None:
    """What differs if the query begins at the group's offsets, and these are not where the sink's last
    decided batch ended: somebody has moved them, or they have stayed behind."""
    odd = {tp: why for tp, found in story.committed.items() if (why := _moved_away(story, tp, found))}
    left_at = story.left_at or {}
    new = [tp for tp in story.begins if tp not in story.committed and tp in left_at]
    odd |= {
        tp: f"no offset, and that batch ended at {_ends(left_at[tp])}"
        for tp in new
        if not _same(story.begins[tp], left_at[tp])
    }
    odd |= {tp: _not_read(story, tp) for tp in story.unread}
    begins = story.begins
    odd |= {
        tp: f"{_ends(begins[tp])}, behind what is new in its log"
        for tp, at in story.cut.items()
        if tp in begins and tp not in odd and max(begins[tp].values()) > at
    }
    if story.anew and not odd:
        return (
            f"its sources {', '.join(story.anew)} read no topics, so they begin anew: what the sink has "
            "written of them may be written again"
        )
    if not odd:
        return None
    return (
        f"it begins at offsets of group {story.group} that are not where the sink's last batch ended "
        f"({story.decided or 'of another sink'}): {_listed(odd.items())}. Rows may be left out, or written "
        "again"
    )


def _moved_away(story: StartFacts, place: TopicPartition, found: NotedOffset) -> str | None:
    """Why the group's offset of a partition is not where the last decided batch ended; None: it is, or no
    decision is known."""
    at, note, begins = found.offset, found.note, story.begins[place]
    ended = None if story.left_at is None else story.left_at.get(place)
    if note is not None and (note.sink != story.sink or not note.decided):
        other = story.others.get(note.sink)
        if other is not None and note.decided and (note.query, note.batch) != other.batch[:2]:
            return f"{at}, committed {_by(note)}, and {other.batch} came later"
        is_known = story.decided is None or story.left_at is not None
        behind = ended is not None and min(begins.values()) < max(ended.values())
        return None if is_known and not behind else f"{at}, committed {_by(note)}{_ended(ended)}"
    if story.decided is None:
        return None
    if ended is not None:
        return None if _same(begins, ended) else f"{at}, committed {_by(note)}{_ended(ended)}"
    if note is None:
        return f"{at}, committed {_by(note)}"
    if (note.query, note.batch) != story.decided[:2]:
        return f"{at}, committed {_by(note)}"
    apart = dict(note.apart) or {"": at}
    return None if _same(begins, apart) else f"{at}, and that batch ended at {_ends(apart)}"


def _by(note: Note | None) -> str:
    if note is None:
        return "by somebody else (by hand, or a consumer)"
    return f"with batch {note.batch} of query {note.query}"


def _way_on(story: StartFacts, at_group: bool) -> str:
    """How a new checkpoint goes on where the sink's last batch ended. `at_group`: the group is elsewhere."""
    ends = {} if story.left is None else story.left.by_name
    lines = {name: _line_for(story, name, end) for name, end in ends.items()}
    said = _each({name: f"startingOffsets={line}" for name, line in lines.items() if line})
    if said:
        exact = f"start it with another new checkpoint and {said}, to go on where that batch ended."
        return f"S{exact[1:]}" if at_group else f"{StartsElsewhere.advice} Or {exact}"
    if at_group:
        return "Start it with another new checkpoint, and startingOffsets by number where that batch ended."
    return StartsElsewhere.advice


def _line_for(story: StartFacts, name: str, end: str) -> str:
    """The last batch's end in a source, for the partitions that this query's source reads. Partitions that
    the batch did not read come from the group, or begin at their beginning. "": nothing of the batch is
    read."""
    ended, names = offsets_of(end), {name for begins in story.begins.values() for name in begins}
    read = {tp for tp in story.ends if len(names) < 2 or name in story.begins.get(tp, ())}
    group, before = story.committed, story.left_at or {}
    rest = {tp: before.get(tp, {}).get(name, EARLIEST) for tp in read - ended.keys()}
    rest |= {tp: group[tp].offset for tp in rest if tp in group}
    return reading_only(end, read, rest) if read & ended.keys() else ""


_MOST_SAID = 4000
"""The most characters of offsets in an error."""


def starting_offsets(places: Places) -> str:
    """The option startingOffsets of each source that has ended there; "" if that is too long."""
    names = sorted({name for ends in places.values() for name in ends})
    each = {name: {tp: ends[name] for tp, ends in places.items() if name in ends} for name in names}
    return _each({name: f"startingOffsets={json.dumps(to_json(at))}" for name, at in each.items()})


def _each(lines: Mapping[str, str]) -> str:
    """A line of each source, with its name if they differ; "" if that is too long."""
    apart = len({*lines.values()}) > 1
    said = [f"{line} for source {name}" if apart else line for name, line in lines.items()]
    together = ", ".join(dict.fromkeys(said))
    return together if len(together) <= _MOST_SAID else ""


def _ended(ends: Mapping[str, int] | None) -> str:
    return "" if ends is None else f", and that batch ended at {_ends(ends)}"


def _ends(ends: Mapping[str, int]) -> str:
    """The ends of sources in one partition."""
    if len({*ends.values()}) == 1:
        return str(next(iter(ends.values())))
    return ", ".join(f"{at} in source {name}" for name, at in sorted(ends.items()))


def _known(at: int | None) -> str:
    return "an offset that its source does not note" if at is None else str(at)


WORD_STATE = "without-state"
"""The word of start.accepted for a query that begins without the state that the last one has saved; with the
number of the sink's last decision, as StartFacts.number."""
WORD_NEW = "new-checkpoint"
"""The word for a query that begins anew where another has been; with the same number."""


def _begins_elsewhere(story: StartFacts, what: str, *, at_group: bool = False) -> list[str]:
    if story.cut:
        said = _listed((tp, f"{at}") for tp, at in story.cut.items())
        what += f"; the log was cut since ({said}), and what others have written from there on is not read"
    if (word := f"{WORD_NEW}:{story.number}") in story.accepted:
        return [
            f"sink {story.sink}: the checkpoint is new, and {what}. start.accepted={word}: continuing. "
            "See troubleshooting.md#the-checkpoint-is-new"
        ]
    raise StartsElsewhere(
        f"sink {story.sink}: the checkpoint is new, and {what}. Nothing was written. "
        f"{_way_on(story, at_group)} If this query is to begin elsewhere, and rows may be there twice or not "
        f"at all, set {to_accept(word, story.accepted)}, or give it a transactional.id and "
        "kafka.group.id of its own"
    )


def check_plain_start(story: StartFacts) -> list[str]:
    """Check the same for at_least_once, which may repeat rows but leaves none out. Returns warnings.

    The query must not begin at offsets that another sink has committed, neither the group's present ones nor
    those that the source has read and the group has moved on from; nor after what was written before it.
    Raises StartsElsewhere."""
    if not story.is_new:
        return []
    _check_taken(story)
    if story.at_group:
        _check_topic(story)
        _check_rows(story.sink, story.rows, story.accepted)
    away = {tp: found.offset - story.ends.get(tp, 0) for tp, found in story.committed.items()}
    if not any(away.values()) or max(away.values()) > 0:
        _from_the_group(story)
    skips = {tp: why for tp, end in story.ends.items() if (why := _skips(story, tp, end))}
    if not skips:
        return []
    last = "the group has notes of it"
    if story.decided is not None:
        last = f"the sink's last decision is {story.decided}"
    what = f"it begins after what was written before it ({last}): {_listed(skips.items())}. Rows are left out"
    return _begins_elsewhere(story, what, at_group=story.at_group and not story.unread)


def _skips(story: StartFacts, place: TopicPartition, end: int) -> str | None:
    """What is left out of a partition whose first batch ends at `end`. None: nothing."""
    if place in story.unread:
        return _not_read(story, place)
    begins = story.begins.get(place) or {"": end}
    written = _written(story, place)
    if not written:
        unknown = story.decided is not None and story.left is None and max(begins.values()) > 0
        return f"{_ends(begins)}, and where that batch ended is not known" if unknown else None
    if all(any(at <= ends.get(n, min(ends.values())) for ends in written) for n, at in begins.items()):
        return None
    return f"{_ends(begins)}, and {' and '.join(map(_ends, written))} was reached"


def _written(story: StartFacts, place: TopicPartition) -> list[Mapping[str, int]]:
    """How far a partition is written, by source: by the sink's last decision, and by a note of the group. The
    note of another sink counts where that decision tells nothing."""
    decided = (story.left_at or {}).get(place)
    found = story.committed.get(place)
    written = [] if decided is None else [decided]
    if found is not None and found.note is not None and (decided is None or found.note.sink == story.sink):
        ends = dict(found.note.apart) or {"": found.offset}
        written.append({name: min(at, story.cut.get(place, at)) for name, at in ends.items()})
    return written


def _check_taken(story: StartFacts) -> None:
    """Check that the source has begun at offsets of this sink, or at offsets that no sink has committed. The
    sink may have another group or none: the source has read the offsets (startingOffsets=committed)."""
    left = _of_others(story, {one.sink for one in story.taken})
    groups = ", ".join(sorted({one.group for one in story.taken if one.sink in left}))
    if left:
        _refuse_offsets(
            story,
            left,
            f"this query begins at offsets of group {groups} that the sink {', '.join(left)} has committed",
        )


def _from_the_group(story: StartFacts) -> None:
    """Check a query that begins at the group's offsets: they must be this sink's, or committed by no sink."""
    left = _of_others(story, {found.note.sink for found in story.committed.values() if found.note})
    if left:
        _refuse_offsets(story, left, _moved_by(story, left))


def _of_others(story: StartFacts, sinks: Collection[str]) -> list[str]:
    return sorted(s for s in {*sinks} - {story.sink} if story.replaces(s) not in story.accepted)


def _refuse_offsets(story: StartFacts, left: list[str], what: str) -> NoReturn:
    other = story.others.get(left[0])
    wrote = f", and writes to {', '.join(other.topics)} as it did" if other and other.topics else ""
    raise StartsElsewhere(
        f"sink {story.sink}: the checkpoint is new, and {what}. What another query has "
        f"read would be left out here. Nothing was written. If this query takes that one's place{wrote}, "
        f"give it transactional.id={left[0]}, in source and sink: it then stops the old one first. Otherwise "
        "begin with another new checkpoint, with startingOffsets and with a kafka.group.id of its own. If "
        "the other one has ended and the name is to change, start it with this checkpoint, and set "
        f"{to_accept(story.replaces(left[0]), story.accepted)}"
    )


def _moved_by(story: StartFacts, sinks: Collection[str]) -> str:
    """Which sinks have committed the group's offsets, and which differ from the first batch's beginning."""
    group, named = story.group, ", ".join(sinks)
    away = {tp: f.offset for tp, f in story.committed.items() if f.offset != story.begins_at(tp)}
    if not away:
        return f"this query begins at offsets of group {group} that the sink {named} has committed"
    said = _listed((tp, f"{at}, not at {_known(story.begins_at(tp))}") for tp, at in away.items())
    return f"the sink {named} has committed to its group {group} since it was planned ({said})"


def check_completed(
    sink: str, completed: Completed, decided: Batch | None, accepted: Collection[str], sequence: int = 0
) -> None:
    """Check that this sink has decided the batches that it got and that are completed.

    Batches after the last one that the checkpoint notes were run by another connector. `decided`: the query's
    last batch that it has decided. `sequence`: of the sink's last decision. Raises DecisionGone, RowsGone or
    CheckpointOlder unless that is accepted.
    """
    newest, since, rested, rows = completed
    begun = newest is not None or decided is not None
    if decided is not None and decided.batch_id >= max(-1 if n is None else n for n in (newest, rows.newest)):
        _check_put_back(sink, decided, rows, accepted)
    if newest is not None and rows.newest is not None:
        newest = min(newest, rows.newest)
    if newest is None or since is None or since > newest:
        if begun:  # of this sink Spark has noted no batch: what another one got, or other queries, is done
            _check_rows(sink, rows, accepted)
        return
    known = decided is not None and decided.batch_id >= newest
    if known or not rows.any:
        _check_rows(sink, rows, accepted)
        return
    proven = rows.proven is not None and rows.proven >= newest
    forgotten = not rows.lacks and (proven or (decided is None and rested))
    if forgotten and not rows.followed:
        return
    if (word := f"decisions-gone:{newest}") in accepted:
        return
    if forgotten:
        _refuse_followed(sink, newest, rows, to_accept(word, accepted))
    _refuse_completed(sink, completed, newest, decided, accepted, sequence)


def _refuse_completed(
    sink: str,
    completed: Completed,
    newest: int,
    decided: Batch | None,
    accepted: Collection[str],
    sequence: int,
) -> NoReturn:
    """Raise DecisionGone: the sink has decided less than the checkpoint has completed."""
    _, since, _, rows = completed
    others, accept = _by_others(completed), to_accept(f"decisions-gone:{newest}", accepted)
    last = -1 if decided is None else decided.batch_id
    last = max(last, -1 if rows.proven is None else rows.proven)  # a start has decided that one again
    found, begins = "none of this query", "what it was at first"
    if last < 0 and ((since is not None and since < newest) or others):
        begins = (
            "the last line of offsets/ of the last batch whose rows are in the sink's topics (what it was at "
            "first, if there are none)"
        )
    if last >= 0:
        found = f"batch {last} as its last one"
        begins = f"the last line of offsets/{last} in this checkpoint"
    knows = f"sink {sink}: the checkpoint has completed batch {newest}, and the sink knows {found}"
    anew = (
        "startingOffsets=committed (with kafka.group.id and transactional.id in source and sink), if "
        "kafka.group.id was given to these batches, else "
        f"startingOffsets={begins} and {to_accept(f'{WORD_NEW}:{sequence}', accepted)}"
    )
    if rows.undecided:
        raise DecisionGone(
            f"{knows}: the cluster has lost decisions, and a part of the rows of later batches is visible"
            f"{_some(rows.undecided)}. Others may be gone{_some(rows.lacks)}. Nothing was written. Look for "
            "the rows of these batches with a reader of committed data, and publish those that are missing; "
            f"then set {accept}, and the query goes on behind them. Or, if what is visible may be there "
            f"twice, start with a new checkpoint and {anew}.{_twice(others)}"
        )
    raise DecisionGone(
        f"{knows}: the cluster has lost decisions, and the rows of these batches with them"
        f"{_some(rows.lacks)}. Were the brokers restored from an older copy? Nothing was written. Restore "
        f"the checkpoint that belongs to that copy; or start with a new one at the copy's offsets: {anew}."
        f"{_twice(others)} If nothing is missing, as another connector wrote these batches or the group was "
        f"idle for longer than offsets.retention.minutes, set {accept}"
    )


def _check_undecided(story: StartFacts) -> None:
    """Check that nothing is visible behind the sink's last decision, where a new checkpoint begins: it would
    be written again. Raises DecisionGone unless that is accepted."""
    undecided = story.rows.undecided
    if not undecided or (word := f"{WORD_NEW}:{story.number}") in story.accepted:
        return
    raise DecisionGone(
        f"sink {story.sink}: the checkpoint is new, and begins where the sink's last decision ended "
        f"({story.decided}). Later rows of the sink are visible{_some(undecided)}, so the cluster has lost "
        "decisions, and these rows would be written again. Nothing was written. Start with the checkpoint of "
        "these batches, if it is there. If these rows may be there twice, set "
        f"{to_accept(word, story.accepted)}"
    )


def _check_put_back(sink: str, decided: Batch, rows: RowsFound, accepted: Collection[str]) -> None:
    """Check that nothing is visible behind a decision that is the last one to the checkpoint, too. Raises
    CheckpointOlder unless that is accepted."""
    if not rows.undecided or (word := f"decisions-gone:{decided.batch_id}") in accepted:
        return
    raise CheckpointOlder(
        f"sink {sink}: {decided} is the last one that the sink has decided and that the checkpoint knows, "
        f"and later rows of the sink are visible{_some(rows.undecided)}. Brokers have lost the decisions on "
        "them, and the checkpoint was set back, too: they would be written again. Nothing was written. Bring "
        "the right checkpoint back, which is the newest. If these rows may be there twice, set "
        f"{to_accept(word, accepted)}"
    )


def _refuse_followed(sink: str, newest: int, rows: RowsFound, accept: str) -> NoReturn:
    """Without decisions nobody knows whether there were later batches."""
    raise CheckpointOlder(
        f"sink {sink}: the checkpoint has completed batch {newest}, the cluster does not have the sink's "
        f"decision on it any more, and rows of transactions follow those of batch {rows.batch}"
        f"{_some(rows.followed)}. If an older copy of the checkpoint was put back, they are of later "
        "batches, and would be written again. Nothing was written. Bring the right checkpoint back, which "
        f"is the newest. If others have written them, set {accept}"
    )


def _by_others(completed: Completed) -> str:
    """Which batches another connector has run on the checkpoint, and the verb; "": none."""
    newest, noted = completed.newest, completed.rows.newest
    if newest is None or noted is None or newest <= noted:
        return ""
    return f"batch {newest} was" if newest == noted + 1 else f"batches {noted + 1} to {newest} were"


def _twice(others: str) -> str:
    if not others:
        return ""
    which = others[0].upper() + others[1:]
    return f" {which} run by another connector: who begins before them writes their rows again."


def _some(said: Sequence[str]) -> str:
    some = "; ".join(said[:5]) + (f"; and {len(said) - 5} more" if len(said) > 5 else "")
    return f" ({some})" if some else ""


def _check_rows(sink: str, rows: RowsFound, accepted: Collection[str]) -> None:
    """Check that the log has the rows of the last batch that is decided and done. Raises RowsGone unless that
    is accepted."""
    if not rows.lacks or (word := f"rows-gone:{rows.batch}") in accepted:
        return
    raise RowsGone(
        f"sink {sink}: batch {rows.batch} is decided and done, and the cluster has lost rows of it or of "
        f"batches before it{_some(rows.lacks)}. Was a topic deleted, or were brokers restored from an older "
        "copy? Nothing was written. To write these rows again, set the checkpoint back (eoslog checkpoint "
        "rewind), or begin with a new checkpoint and a new transactional.id. When it is set back, or if they "
        f"are not wanted any more, set {to_accept(word, accepted)}"
    )


def check_forgotten(sink: str, batch: Batch, seen: Mapping[Place, Seen], accepted: Collection[str]) -> bool:
    """Whether a planned batch is decided that the sink knows nothing of, and whose rows may be in the log:
    all or none of its transactions must be committed. What was removed from the log tells nothing, nor does a
    topic of another id: it was made anew, or is another cluster's. `seen`: what the log shows at the places
    of its rows. Raises DecisionGone unless that is accepted."""
    by_writer = ended(seen)
    how = set(by_writer.values())
    written, missing = (f"batch-{word}:{batch.query_id}:{batch.batch_id}" for word in ("written", "missing"))
    if written in accepted:
        return True
    others = ", ".join(sorted(one.value for one in how if one is not Seen.COMMITTED))
    if Seen.COMMITTED in how and others:
        raise DecisionGone(
            f"sink {sink}: {batch} is decided, as a part of its rows is visible, and the sink knows no such "
            f"decision: the cluster has forgotten it before all rows were (others are {others}). Nothing was "
            "written. Look for the batch's rows in the topic with a reader of committed data, and publish "
            f"those that are missing; then set {to_accept(written, accepted)}, and the query goes on behind "
            "them"
        )
    replaced = {p.topic for p, one in seen.items() if one is by_writer[p.writer] is Seen.REPLACED}
    gone = "which were removed since, by retention or compaction" if Seen.REMOVED in how else ""
    if replaced:
        gone = (
            f"in {', '.join(sorted(replaced))}, which is not that topic any more: it was deleted since, or "
            "kafka.bootstrap.servers leads to another cluster of the same cluster id, and has to be corrected"
        )
    if gone and missing not in accepted:
        raise DecisionGone(
            f"sink {sink}: the log had rows of {batch}, {gone}. The sink knows no decision on them here, so "
            "readers may have had them. Nothing was written. If they have, set "
            f"{to_accept(written, accepted)}, and the query goes on behind them. If not, set "
            f"{to_accept(missing, accepted)}, and they are written again"
        )
    return how == {Seen.COMMITTED}


def others_batches(completed: Completed) -> str:
    """A sentence about batches that another connector has run on the checkpoint. "": there are none."""
    which = _by_others(completed)
    return which and (
        f"{which} run by another connector, as the checkpoint notes none of them (eoslog/places): the "
        "query goes on behind them. See troubleshooting.md#another-connector-has-run-batches"
    )


def _missing_decisions(story: StartFacts) -> list[str]:
    """Warn of batches that are completed in the checkpoint but that the sink has not decided, if the
    checkpoint does not say which sink got them."""
    if story.since is not None or story.completed is None or story.last >= story.completed:
        return []
    last = "no batch of this query" if story.ours is None else f"batch {story.ours} last"
    other = f" (its last decision is {story.decided})" if story.decided and story.ours is None else ""
    return [
        f"sink {story.sink}: the checkpoint has completed batch {story.completed}, but the sink has decided "
        f"{last}{other}. That is right where another connector, transactional.id or processing.guarantee "
        "wrote the batches between. If not, the cluster has lost decisions, and rows with them, or the sink "
        f"writes to another cluster; and if the last run was killed right after it decided batch "
        f"{story.batch.batch_id}, its rows are written twice. "
        "See troubleshooting.md#the-sink-has-decided-no-batch-of-this-query"
    ]


def _moved_group(story: StartFacts) -> list[str]:
    """Warn if the group's offsets are not those at which the last decided batch ended."""
    if story.ended is None:
        return []
    _, ended = story.ended
    moved = {tp: (at, story.committed[tp]) for tp, at in ended.items() if tp in story.committed}
    moved = {tp: (at, found) for tp, (at, found) in moved.items() if found.offset != at}
    if not moved:
        return []
    who = {found.note.sink for _, found in moved.values() if found.note} - {story.sink}
    by = f"the sink {', '.join(sorted(who))}" if who else "somebody else (by hand, or a consumer)"
    said = _listed((tp, f"{found.offset}, not at {at}") for tp, (at, found) in moved.items())
    return [
        f"sink {story.sink}: the offsets of group {story.group} were changed by {by}: {said}, where batch "
        f"{story.ours} ended. The checkpoint takes precedence: the query continues where it was, and its "
        "next batch commits its own offsets again. Give each query a kafka.group.id of its own; to move a "
        "query, start it with a new checkpoint and startingOffsets. "
        "See troubleshooting.md#the-offsets-of-the-group-were-changed"
    ]


def _listed(places: Iterable[tuple[TopicPartition, str]]) -> str:
    return "; ".join(f"{topic}-{partition} at {text}" for (topic, partition), text in sorted(places))
