"""Compares where a query with a new checkpoint begins with where the sink's last query, or others, ended.

Pure rules, as start_checks.py.
"""

import json
from collections.abc import Collection, Mapping
from typing import NoReturn

from eoslog.connector.checkpoint.accepted_differences import to_accept
from eoslog.connector.checkpoint.completed_batches import check_rows, check_undecided
from eoslog.connector.checkpoint.spark_logs import Planned, offsets_of, reading_only
from eoslog.connector.checkpoint.start_facts import (
    WORD_NEW,
    WORD_STATE,
    Places,
    StartFacts,
    listed,
)
from eoslog.connector.commit.faults import (
    StartsElsewhere,
)
from eoslog.connector.offsets.group_notes import Note, NotedOffset
from eoslog.connector.offsets.offsets import EARLIEST, Offsets, to_json
from eoslog.connector.offsets.plan import recreated
from eoslog.errors.pages import see
from eoslog.protocol.topic_partitions import TopicPartition


def check_new_checkpoint(story: StartFacts) -> list[str]:
    """Check where a query with a new checkpoint begins. To begin at the group's offsets is exact if this sink
    has committed them (a hand-over): no other driver owns the sink any more, so none can change them."""
    _check_taken(story)
    if story.left_state and (word := f"{WORD_STATE}:{story.last_written}") not in story.accepted:
        raise StartsElsewhere(
            f"sink {story.sink}: the checkpoint is new, and the last query of this transactional.id has "
            "saved its state (state.topic), which this one would begin without. Nothing was written. Remove "
            "this checkpoint's folder, where Spark has planned the first batch, and restore the checkpoint "
            "before the start, with eoslog checkpoint restore or restore_checkpoint. If this query is to "
            "begin without state, set "
            f"{to_accept(word, story.accepted)}"
        )
    if takes_place(story):
        check_rows(story.sink, story.rows, story.accepted)  # first: who goes elsewhere is not asked again
        if not _goes_on(story):
            _from_the_group(story)
            if odd := _not_where_it_ended(story):
                return _begins_elsewhere(story, odd, at_group=True)
        _check_topic(story)
        _check_left_out(story)
        check_undecided(story)
        return _made_anew(story)
    if story.unread and story.decided is not None:
        return _begins_elsewhere(story, f"it begins behind rows that no batch has read ({_unread(story)})")
    if any(found.note for found in story.committed.values()):
        said = listed(
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
    check_undecided(story)
    return []


def check_forgotten_name(sink: str, accepted: Collection[str]) -> None:
    """A new checkpoint under a name that has decided, and the cluster does not know any more what. Raises
    StartsElsewhere unless that is accepted."""
    if (word := f"{WORD_NEW}:0") in accepted:
        return
    raise StartsElsewhere(
        f"sink {sink}: the checkpoint is new, and batches were decided under this transactional.id. The "
        "cluster has forgotten which: the sink's group was deleted, or was idle for longer than "
        "offsets.retention.minutes. What they have read would be written again, or left out. Nothing was "
        "written. Start with the checkpoint of these batches, if it is there, or give this query a "
        "transactional.id of its own. If startingOffsets is where they ended, or rows may be there twice or "
        f"not at all, set {to_accept(word, accepted)}"
    )


def _check_topic(story: StartFacts) -> None:
    """Check that a query that goes on where the sink's last one ended writes to the same topic."""
    if story.went_to is None or (word := f"{WORD_NEW}:{story.last_written}") in story.accepted:
        return
    ended = story.decided or f"as group {story.group} notes"
    raise StartsElsewhere(
        f"sink {story.sink}: the checkpoint is new, and this query goes on where the sink's last query ended "
        f"({ended}), which has written to {story.went_to}: what that one has read would be missing in this "
        f"one's topic{_also(_not_read_any_more(story))}. Nothing was written. Is it another query, or one on "
        "a copied checkpoint? Give this one a transactional.id and a kafka.group.id of its own, and "
        "startingOffsets of its own on another new checkpoint. If the topic was changed, set "
        f"{to_accept(word, story.accepted)}"
    )


def _check_left_out(story: StartFacts) -> None:
    """Check that a query that goes on where the sink's last one ended reads what that one has read: its
    position in what is left out is forgotten with the group."""
    if not story.left_out or (word := f"{WORD_NEW}:{story.last_written}") in story.accepted:
        return
    raise StartsElsewhere(
        f"sink {story.sink}: the checkpoint is new, and this query goes on where the sink's last query ended "
        f"({story.decided}){_also(_not_read_any_more(story))}. Nothing was written. Start it with another "
        "new checkpoint, and name these topics as before. If they are not to be read any more, set "
        f"{to_accept(word, story.accepted)}"
    )


def _not_read_any_more(story: StartFacts) -> str:
    if not story.left_out:
        return ""
    said = listed((tp, f"{at}") for tp, at in story.left_out.items())
    return (
        f"partitions that the last query has read are left out ({said}): if this one reads them later, it "
        "begins there anew, and rows may be written again"
    )


def _writes_elsewhere(story: StartFacts) -> str:
    if story.went_to is None:
        return ""
    wrote = f"the last query has written to {story.went_to}"
    return f"{wrote}: what it has read would be missing in this one's topic"


def _also(*differences: str) -> str:
    """What the same word accepts, too."""
    return "".join(f"; {said}" for said in differences if said)


def left_out(left: Planned, now: Planned) -> Offsets:
    """Partitions that the sink's last query has read, and that the new checkpoint's first batch does not,
    with where that one stood. What was made anew is left out: nobody has read it."""
    stood, read = left.each_left() | left.each_end(), now.each_end()
    places = {tp: max(each.values()) for tp, each in stood.items() if tp not in read}
    return {tp: at for tp, at in places.items() if at > 0}


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
    return listed((tp, _not_read(story, tp)) for tp in story.unread)


def _made_anew(story: StartFacts) -> list[str]:
    """Warn of topics that are read from their beginning, as they were made anew since the last decision."""
    topics = sorted({topic for topic, _ in story.begins} & set(story.remade))
    if not topics:
        return []
    return [
        f"sink {story.sink}: {', '.join(topics)} was deleted and created again since {story.decided}. It is "
        f"read from its beginning, and what nobody had read of the former one is gone. {see('dataloss')}"
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
        f"({story.decided or 'of another sink'}): {listed(odd.items())}. Rows may be left out, or written "
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
    if before := {tp[0] for tp in story.unread if tp in story.committed}:  # a line would lead here again
        return f"Go on with the checkpoint of that batch, if it is there: {take_up(before)}."
    ends = {} if story.left is None else story.left.by_name
    said = starting_at({name: _line_for(story, name, end) for name, end in ends.items()})
    if said:
        exact = f"start it with another new checkpoint and {said}, to go on where that batch ended."
        return f"S{exact[1:]}" if at_group else f"{StartsElsewhere.advice} Or {exact}"
    if at_group:
        return "Start it with another new checkpoint, and startingOffsets by number where that batch ended."
    return StartsElsewhere.advice


def take_up(topics: Collection[str]) -> str:
    """How a query goes on in topics that an earlier query of its sink has read."""
    each = ", and ".join(f"eoslog checkpoint add-topic CHECKPOINT {topic}" for topic in sorted(topics))
    return f"give {each}; then start it"


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


def starting_at(lines: Mapping[str, str]) -> str:
    """The option startingOffsets of each source, from its line in the offset log; "": none has one, or that
    is too long."""
    return _each({name: f"startingOffsets={line}" for name, line in lines.items() if line})


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


def _begins_elsewhere(story: StartFacts, what: str, *, at_group: bool = False) -> list[str]:
    if story.cut:
        said = listed((tp, f"{at}") for tp, at in story.cut.items())
        what += f"; the log was cut since ({said}), and what others have written from there on is not read"
    if takes_place(story):
        what += _also(_writes_elsewhere(story), _not_read_any_more(story))
    if (word := f"{WORD_NEW}:{story.last_written}") in story.accepted:
        return [
            f"sink {story.sink}: the checkpoint is new, and {what}. start.accepted={word}: continuing. "
            f"{see('the-checkpoint-is-new')}"
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
        check_rows(story.sink, story.rows, story.accepted)
    away = {tp: found.offset - story.ends.get(tp, 0) for tp, found in story.committed.items()}
    if not any(away.values()) or max(away.values()) > 0:
        _from_the_group(story)
    skips = {tp: why for tp, end in story.ends.items() if (why := _skips(story, tp, end))}
    if not skips:
        if story.at_group:
            _check_topic(story)
        return []
    last = "the group has notes of it"
    if story.decided is not None:
        last = f"the sink's last decision is {story.decided}"
    what = f"it begins after what was written before it ({last}): {listed(skips.items())}. Rows are left out"
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
    other, notes = story.others.get(left[0]), [f.note for f in story.committed.values() if f.note]
    topics = other.topics if other else {n.topic for n in notes if n.sink == left[0] and n.topic}
    wrote = f", and writes to {', '.join(sorted(topics))} as it did" if topics else ""
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
    said = listed((tp, f"{at}, not at {_known(story.begins_at(tp))}") for tp, at in away.items())
    return f"the sink {named} has committed to its group {group} since it was planned ({said})"
