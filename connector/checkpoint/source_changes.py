"""The rules for sources that are added, removed or renamed under a checkpoint (Spark's source evolution).
Pure.

Spark knows a source by its name. A source that the batch before did not have is a new one to Spark and begins
at its startingOffsets, even if it has only another name. So rows that a former source has read would be there
twice, or rows that nobody has read would be left out. The end of a source's first batch says where it began.
Of Spark's Kafka source it can be seen only if that batch is empty.

If a batch runs again without one of its sources, Spark leaves out that source's rows, and its offset log
still says that they were read.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, NoReturn, Self

from eoslog.connector.checkpoint.accepted_differences import to_accept
from eoslog.connector.checkpoint.spark_logs import (
    Planned,
    beginning_of,
    is_eoslog,
    offsets_of,
    says_beginning,
    source_position,
    taken_of,
)
from eoslog.connector.offsets.group_notes import NotedOffset
from eoslog.connector.offsets.offsets import EARLIEST, Offsets, SourcePosition, to_json
from eoslog.connector.offsets.plan import recreated
from eoslog.errors import EoslogError
from eoslog.protocol.topic_partitions import TopicPartition


class SourcesChanged(EoslogError):
    """Sources were added, removed or renamed under a checkpoint, and rows could be lost or doubled."""


class Removed(NamedTuple):
    """A source that the query had: the last batch that has it, and its end offsets there, as JSON."""

    batch: int
    end: str


class RemovedSources(NamedTuple):
    """The sources that a query had, by name; kept in the checkpoint, as Spark forgets them."""

    sources: Mapping[str, Removed]

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """The reverse of text(). Raises ValueError, KeyError, TypeError."""
        if text is None:
            return cls({})
        found = json.loads(text)
        if found["version"] != 1:
            raise ValueError("a later version of eoslog has written it; use that version")
        return cls({name: Removed(int(n), str(end)) for name, (n, end) in found["removed"].items()})

    def text(self) -> str:
        """The note's text in the checkpoint."""
        return json.dumps({"version": 1, "removed": self.sources})

    def after(self, before: Planned, now: Planned) -> Self:
        """With the sources that `before` has and `now` has not."""
        left = before.by_name.keys() - now.by_name.keys()
        gone = {name: Removed(before.batch_id, before.by_name[name]) for name in sorted(left)}
        return type(self)({**self.sources, **gone})

    def file_logs(self) -> dict[str, int]:
        """The sources of files, and how far the query has read their own logs."""
        ends = tuple(one.end for one in self.sources.values())
        return Planned(-1, ends, tuple(self.sources)).file_logs()

    def ends(self, place: TopicPartition) -> list[int]:
        """Where the sources ended that were the last to read a partition."""
        readers = [one for one in self.sources.values() if place in offsets_of(one.end)]
        newest = max((one.batch for one in readers), default=-1)
        return [offsets_of(one.end)[place] for one in readers if one.batch == newest]

    def of_another(self, topic: str, number: str | None) -> bool:
        """Whether the sources have read another topic of this name: `number` is the id of the one of now."""
        read = {source_position(one.end).ids.get(topic) for one in self.sources.values()} - {None}
        return number is not None and bool(read) and number not in read


class Change(NamedTuple):
    """What is compared when a batch has sources that the batch before did not have.

    `committed`: offsets of kafka.group.id for the partitions of the new sources.
    """

    sink: str
    before: Planned
    now: Planned
    removed: RemovedSources
    committed: Mapping[TopicPartition, NotedOffset]
    accepted: Collection[str]

    @property
    def added(self) -> dict[str, str]:
        """The new sources' end offsets by name."""
        return {name: end for name, end in self.now.by_name.items() if name not in self.before.by_name}


def added_offsets(before: Planned, now: Planned) -> Offsets:
    """The partitions of all sources that `now` has and `before` has not."""
    added = [end for name, end in now.by_name.items() if name not in before.by_name]
    return {place: at for end in added for place, at in offsets_of(end).items()}


def check_added(change: Change) -> None:
    """Check that each new source begins where the query's reading of its partitions has ended, or reads what
    the query has not read. Raises SourcesChanged unless that is accepted."""
    still_read = {
        place: name
        for name, end in change.before.by_name.items()
        if name in change.now.by_name
        for place in offsets_of(end)
    }
    left: dict[TopicPartition, list[int]] = {}  # each former source has one successor
    for name, end in sorted(change.added.items()):
        said = [_elsewhere(change, still_read, left, place, end) for place in offsets_of(end)]
        said += [_continued(change, name, end)]
        said += [f"its offsets were committed by the sink {sink}" for sink in _foreign(change, end)]
        word = f"new-source:{name}:{change.now.batch_id}"
        if any(said) and word not in change.accepted:
            _refuse(change, name, "; ".join(filter(None, said)), to_accept(word, change.accepted))


def grown(before: Planned, now: Planned) -> dict[str, list[TopicPartition]]:
    """The partitions that each source reads for the first time: to Spark they are new, and begin at their
    beginning. None of them are those of a new source or of one that read no topics, nor those that a source
    has left before."""
    found = {}
    for name, end in now.by_name.items():
        stood = source_position(before.by_name.get(name, "{}"))
        fresh = [place for place in offsets_of(end) if place not in {*stood.offsets, *stood.left.offsets}]
        if stood.offsets and fresh:
            found[name] = fresh
    return found


def check_grown(
    before: Planned, now: Planned, read: Callable[[TopicPartition], int], accepted: Collection[str]
) -> None:
    """Check that nobody has read what sources read for the first time. `read`: up to where a former source or
    an earlier query of the sink has read a partition. Raises SourcesChanged unless that is accepted."""
    for name, fresh in grown(before, now).items():
        ended = {place: read(place) for place in fresh}
        word = f"new-source:{name}:{now.batch_id}"
        if any(ended.values()) and word not in accepted:
            starts = offsets_of(before.by_name[name]) | ended
            _refuse_grown(now, name, ended, starts, to_accept(word, accepted))


def _refuse_grown(now: Planned, name: str, ended: Offsets, starts: Offsets, accept: str) -> NoReturn:
    batch, starting = now.batch_id, f"startingOffsets={json.dumps(to_json(starts))}"
    topics = sorted({topic for topic, _ in ended})
    given = [
        f"eoslog checkpoint add-topic CHECKPOINT {one} --start '{json.dumps(to_json(_of_topic(ended, one)))}'"
        for one in topics
    ]
    said = ", ".join(f"{topic}-{number} up to {at}" for (topic, number), at in sorted(ended.items()) if at)
    way = f"Start with a new checkpoint, the same names and {starting}"
    if len(now.by_name) == 1:
        way = f"Give {', and '.join(given)}; then start it"
    if now.names:
        way = (
            f"Remove offsets/{batch} from the checkpoint (with offsets/.{batch}.crc, if it is there) and "
            f"start the source under another name, with {starting}"
        )
    raise SourcesChanged(
        f"batch {batch} is the first in which the source {name} reads what was read before ({said}), and "
        f"Spark begins at its beginning. Rows would be written again. Nothing was written. {way}. If the "
        f"rows from the beginning on are to be written, set {accept}"
    )


def _of_topic(ended: Offsets, topic: str) -> Offsets:
    """The partitions of one topic; one that nobody has read begins at its beginning."""
    return {place: at or EARLIEST for place, at in ended.items() if place[0] == topic}


def _elsewhere(
    change: Change,
    still_read: Mapping[TopicPartition, str],
    left: dict[TopicPartition, list[int]],
    place: TopicPartition,
    end: str,
) -> str:
    """Where the query's reading of a partition ended, if that is not where the new source begins. `end`: of
    the new source's first batch."""
    where, by_group, at = f"{place[0]}-{place[1]}", change.committed.get(place), beginning_of(end)[place]
    begins = f"{where} {'begins' if says_beginning(end) else 'ends its first batch'} at {at}"
    if place in still_read:
        return f"{where} is also read by the source {still_read[place]}"
    if change.removed.of_another(place[0], source_position(end).ids.get(place[0])):
        return f"{place[0]} was deleted and created again since a former source has read it"
    ends = left.setdefault(place, change.removed.ends(place))
    if not ends and by_group is not None and by_group.offset != at:
        return f"{begins}, the group is at {by_group.offset}"
    if at in ends:
        ends.remove(at)
        return ""
    known = change.removed.ends(place)
    return f"{begins}, a former source ended at {known[0]}" if known else ""


def _continued(change: Change, name: str, end: str) -> str:
    """Whether Spark continues a source where it was before a single batch without it: whatever was read under
    another name meanwhile, and only until the batch runs again, which then begins at startingOffsets."""
    former = change.removed.sources.get(name)
    if former is None or former.batch != change.before.batch_id - 1 or not is_eoslog(end):
        return ""
    return (
        f"{name} was read two batches before, in batch {former.batch}, and Spark would continue it there, "
        "but begin it at its startingOffsets if this batch runs again; give it another name"
    )


def _foreign(change: Change, end: str) -> list[str]:
    """Other sinks that have committed the offsets at which a new source begins."""
    sinks = {one.sink for one in taken_of(end)}
    for place, at in beginning_of(end).items():
        found = change.committed.get(place)
        if found and found.note and found.offset == at:
            sinks.add(found.note.sink)
    return sorted(sinks - {change.sink})


def _refuse(change: Change, name: str, said: str, accept: str) -> None:
    batch = change.now.batch_id
    raise SourcesChanged(
        f"batch {batch} is the first with the source {name}, and Spark starts it as a new one: {said}. "
        "Rows may be written again, or left out. Nothing was written. "
        f"Remove offsets/{batch} from the checkpoint (with "
        f"offsets/.{batch}.crc, if it is there) and start {name} where the former source ended: "
        "startingOffsets=committed with kafka.group.id in source and sink, or that source's line of the "
        "offset log as startingOffsets. If the rows from its startingOffsets on are to be written, set "
        f"{accept}"
    )


def check_exchanged(before: Planned, now: Planned, accepted: Collection[str]) -> None:
    """Check that no source reads on what another source of the query has read before: if their options or
    their order were exchanged, each would read the other's topics again, from the beginning. Raises
    SourcesChanged unless that is accepted."""
    then = {name: source_position(end) for name, end in before.by_name.items()}
    for name, end in sorted(now.by_name.items()):
        others = {other: stood for other, stood in then.items() if other != name}
        if name not in then or not others:
            continue
        known, ids = {*then[name].offsets, *then[name].left.offsets}, source_position(end).ids
        found = {
            place: other
            for place in sorted(offsets_of(end).keys() - known)
            for other, stood in others.items()
            if _has_read(stood, place, ids)
        }
        word = f"new-source:{name}:{now.batch_id}"
        if found and word not in accepted:
            said = "; ".join(f"{t}-{p}, which source {other} has read" for (t, p), other in found.items())
            batch = now.batch_id
            raise SourcesChanged(
                f"batch {batch} has source {name} read {said}: were sources exchanged? Rows would be written "
                f"again. Nothing was written. Remove offsets/{batch} from the checkpoint (with "
                f"offsets/.{batch}.crc, if it is there) and start the query with its sources in their "
                "former order and with their former options. If these rows are wanted again, set "
                f"{to_accept(word, accepted)}"
            )


def check_exchanged_files(
    now: Planned,
    files: Mapping[str, Collection[str]],
    read: Mapping[str, Collection[str]],
    accepted: Collection[str],
) -> None:
    """Check the same of sources of files: Spark knows which files a source has read by the source's place or
    name. `files`: of this batch, by source; `read`: of all batches before, those of removed sources, too. Two
    sources that have read one file before share a folder. Raises SourcesChanged unless that is accepted."""
    for name, paths in sorted(files.items()):
        own = {*read.get(name, ())}
        apart = {other: {*known} for other, known in read.items() if other != name and not own & {*known}}
        found = {path: other for other, known in sorted(apart.items()) for path in sorted(known & {*paths})}
        word = f"new-source:{name}:{now.batch_id}"
        if found and word not in accepted:
            some = [f"{path}, which source {other} has read" for path, other in found.items()]
            more = f"; and {len(some) - 3} more" if len(some) > 3 else ""
            entries = ", ".join([f"offsets/{now.batch_id}", *sorted(now.entries or ())])
            raise SourcesChanged(
                f"batch {now.batch_id} has source {name} read {'; '.join(some[:3])}{more}: were sources "
                f"exchanged? Rows would be written again. Nothing was written. Remove {entries} from the "
                "checkpoint (each with its .crc, if it is there) and start the query with its sources in "
                "their former order and with their former options. If these rows are wanted again, set "
                f"{to_accept(word, accepted)}"
            )


def _has_read(stood: SourcePosition, place: TopicPartition, ids: Mapping[str, str]) -> bool:
    """Whether a source has read rows of a partition, of the topic that has these ids now."""
    for at, then in ((stood.offsets, stood.ids), (stood.left.offsets, stood.left.ids)):
        topic = place[0]
        if at.get(place, 0) > 0 and then.get(topic, ids.get(topic)) == ids.get(topic):
            return True
    return False


def check_remade(now: Planned, before: Iterable[Planned], accepted: Collection[str]) -> None:
    """Check that no topic was deleted and created again behind batches of another connector: their ends do
    not name its id, so the source goes on at an offset of the former topic. `before`: the batches before
    `now`, the newest first. Raises SourcesChanged unless that is accepted."""
    kept = iter(before)
    last = next(kept, None)
    if last is None:
        return
    plain = {name: offsets_of(end) for name, end in last.by_name.items() if not is_eoslog(end)}
    wanted = {name: ends for name, ends in plain.items() if name in now.by_name and any(ends.values())}
    for batch in kept if wanted else ():
        for name in [name for name in wanted if is_eoslog(batch.by_name.get(name, ""))]:
            ends, known = wanted.pop(name), source_position(batch.by_name[name])
            end = source_position(now.by_name[name])
            ids = end.ids if end.cluster == known.cluster else {}
            for topic, (old, new) in recreated(known.ids, ids).items():
                stands = {place: at for place, at in ends.items() if place[0] == topic}
                word = f"topic-anew:{new}"
                if any(stands.values()) and word not in accepted:
                    _refuse_remade(last.batch_id, stands, (old, new), to_accept(word, accepted))
        if not wanted:
            return


def _refuse_remade(batch: int, stands: Offsets, ids: tuple[str, str], accept: str) -> None:
    (topic, _), (old, new) = next(iter(stands)), ids
    said = ", ".join(f"{topic}-{partition} at {at}" for (_, partition), at in sorted(stands.items()))
    anew = json.dumps(to_json(dict.fromkeys(sorted(stands), EARLIEST)))
    raise SourcesChanged(
        f"topic {topic} was deleted and created again: its id was {old}, and it is {new} now. Batch {batch}, "
        f"which another connector has run, ends in one of the two and does not say in which ({said}): rows "
        "could be left out. Nothing was written. To read the new one from its beginning, eoslog checkpoint "
        f"rewind --to '{anew}'. If it was read as far as this, set {accept}"
    )


def check_present(
    before: Planned | None, now: Planned, asked: Counter[str], accepted: Collection[str]
) -> None:
    """Check that a batch runs with all sources with which it was planned.

    `asked`: the end offsets (as `canonical` has them) that sources of this driver have planned or were asked
    for, with their numbers. Only eoslog's own sources with new rows are looked for. Raises SourcesChanged
    unless that is accepted.
    """
    if not now.names:
        return
    then = before.by_name if before is not None else {}
    moved = {name: end for name, end in now.by_name.items() if is_eoslog(end) and then.get(name) != end}
    wanted = Counter(canonical_text(end) for end in moved.values())
    missing = [name for name, end in moved.items() if _lacks(wanted, asked, end)]
    if not missing or (word := f"without-sources:{now.batch_id}") in accepted:
        return
    batch, listed = now.batch_id, ", ".join(missing)
    raise SourcesChanged(
        f"batch {batch} was planned with the sources {', '.join(sorted(now.names))}, and runs again "
        f"without {listed}: what they should read in this batch would be left out. Nothing was written. "
        "Start the query with its former sources until the batch is done, then change them; or remove "
        f"offsets/{batch} from the checkpoint (with offsets/.{batch}.crc, if it is there). If these rows are "
        "not wanted, or Spark has left the source out of its plan because the query uses none of its rows, "
        f"set {to_accept(word, accepted)}"
    )


def _lacks(wanted: Counter[str], asked: Counter[str], end: str) -> bool:
    text = canonical_text(end)
    return asked[text] < wanted[text]


def canonical(end: Mapping[str, Mapping[str, int]]) -> str:
    """End offsets as a text that does not depend on the order of topics and partitions."""
    return json.dumps(end, sort_keys=True)


def canonical_text(end: str) -> str:
    """The same of a source's line in the offset log; another kind of source's line as it is."""
    try:
        return canonical(json.loads(end))
    except ValueError:
        return end
