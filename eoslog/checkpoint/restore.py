"""Writes a query's checkpoint again from where it was saved (state.topic), as it was when a batch had been
planned.

The sink is fenced first, so that nothing more is decided. Its last decision says which save counts. The
batches that were decided since stand as further ends in the offset log's entry of the saved one: the source
plans them as they were, Spark runs them again for their state, and the sink lets their rows pass. The last of
them has to have the source offsets of the last decision.
"""

import json
import logging
import shlex
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, NamedTuple

from eoslog.checkpoint.edit_numbers import NotRestorable
from eoslog.checkpoint.rebuild import Lost, written_elsewhere
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.checkpoint.noted_sink import NotedStarts
from eoslog.connector.checkpoint.spark_logs import FormatError, Planned, with_ends
from eoslog.connector.checkpoint.start_facts import WORD_STATE
from eoslog.connector.commit.begin import has_forgotten
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.leave_sink import taken_over
from eoslog.connector.commit.saved_state import Saved
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import leading_to
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.saved.read_back import parsed, records_of
from eoslog.connector.saved.run_again import UNFINISHED, note_decided
from eoslog.connector.saved.save import note_restored
from eoslog.connector.saved.state_files import (
    DECIDED,
    FILE,
    MANIFEST,
    Content,
    DecidedBatch,
    Key,
    Manifest,
    is_of_checkpoint,
    keys_of,
)
from eoslog.connector.sink.noted_rows import undecided_behind
from eoslog.errors import OptionError

logger = logging.getLogger(__name__)

_LOGS = ("offsets/", "commits/")


class Restored(NamedTuple):
    """What was restored. `batch`: the one that Spark runs with the saved state; `decided`: the last decided
    one, or, after an edit or a take-over, the one before it."""

    checkpoint: str
    query: str
    batch: int
    decided: int
    files: int
    bytes: int

    def __str__(self) -> str:
        return (
            f"checkpoint {self.checkpoint} of query {self.query} is restored: {self.files} files, "
            f"{self.bytes} bytes. Its next start {self._goes_on()}"
        )

    def _goes_on(self) -> str:
        if self.batch > self.decided:
            return f"goes on after batch {self.decided}"
        batches = f"batches {self.batch} to {self.decided}"
        if self.batch == self.decided:
            batches = f"batch {self.batch}"
        return f"runs {batches} again, for the state alone"


def restore(
    cluster: Cluster,
    runner: Runner,
    lost: Lost,
    location: str,
    seen: Callable[[int, int], None] | None = None,
) -> Restored | None:
    """Restore a checkpoint into an empty folder. None: the sink has decided nothing, so nothing is lost.

    Raises NotRestorable, CheckpointUnreadable, CommitFault, KafkaError, EoslogError.
    """
    checkpoint, sink = Checkpoint.at(location), lost.sink
    if not is_empty(checkpoint):
        said = _only_planned(checkpoint) or "has batches"
        raise NotRestorable(f"checkpoint {checkpoint.location} {said}: start the query with it")
    last = runner.run(taken_over(sink))
    decision = None if last is None else last.of_query
    if decision is None:
        if runner.run(has_forgotten(sink)):
            raise NotRestorable(
                f"sink {sink.id}: the cluster has forgotten which batch was decided last, and with it where "
                "the state is: the sink's group was deleted, or has expired. Nothing was restored. Start "
                "with the checkpoint of these batches, if it is there; what a new one needs, its start says"
            )
        return None
    if said := written_elsewhere(lost, decision):
        raise NotRestorable(said)
    if undecided := undecided_behind(cluster, sink.id, last):
        raise NotRestorable(
            f"sink {sink.id}: later rows than those of its last decision, {decision.batch}, are visible "
            f"({'; '.join(undecided[:5])}): the cluster has lost decisions, and a restored query would write "
            "these rows again. Nothing was restored. If there is no copy of the checkpoint of these batches, "
            f"begin with a new one: startingOffsets=committed and start.accepted={WORD_STATE}:"
            f"{decision.word}. Its start names the word with which these rows are written again"
        )
    saved = decision.saved
    if saved is None:
        raise NotRestorable(
            f"sink {sink.id}: {decision.batch} is decided, and no state was saved with it: the query did not "
            "have the option state.topic. A query without state can begin with a new checkpoint and "
            "startingOffsets=committed"
        )
    with tempfile.TemporaryFile(prefix="eoslog-restore-") as room:
        kept = Spool(room)
        for key, value in records_of(cluster, saved.topic, saved.partition, sink.id, seen):
            if value is None:
                kept.drop(key)
            else:
                kept.put(key, value)
        manifest = parsed(kept.whole(keys_of(sink.id, MANIFEST, "", saved.size)), saved)
        if manifest is None or manifest.query != decision.batch.query_id:
            raise _lost(sink, decision, saved, f"the save of batch {saved.batch}")
        return _written(checkpoint, sink, decision, saved, manifest, kept)


def restore_checkpoint(location: str, options: Mapping[str, str]) -> Restored | None:
    """Restore a query's checkpoint if there is none at `location`. Call it before the query is started; a
    driver that still runs the query is stopped.

    `options`: those of the query's writer. Returns None if the checkpoint is there, or the query has decided
    nothing. Raises EoslogError (OptionError, NotRestorable and others: catch this base), or an Exception
    that has the name of Kafka's error code.
    """
    given = sink_options({**options, "checkpointLocation": location}, stream=True)
    if given.state is None or given.transactional_id is None:
        raise OptionError("restore_checkpoint: the option state.topic is missing: give the writer's options")
    checkpoint = Checkpoint.at(location)
    if not is_empty(checkpoint):
        if said := _only_planned(checkpoint):
            logger.warning("checkpoint %s is not restored: it %s, it is used as it is", location, said)
        return None
    cluster = shared_cluster(given.client)
    cluster.meet()
    runner = Runner(cluster, OWN_TIMEOUT_MS, decisions=given.decision_topic)
    lost = Lost(Sink(given.transactional_id), given.topic or "", given.decision_topic)
    restored = restore(cluster, runner, lost, location)
    if restored is not None:
        logger.warning("%s", restored)
    return restored


def is_empty(checkpoint: Checkpoint) -> bool:
    """Whether no query has planned a batch here, or a restore was interrupted."""
    unfinished = checkpoint.noted(UNFINISHED) is not None
    return unfinished or not any(checkpoint.batches(log) for log in ("offsets", "commits"))


def _only_planned(checkpoint: Checkpoint) -> str | None:
    """What to do about a checkpoint whose first batch is planned and not done, as a start that stopped with
    StartsElsewhere leaves it. None: it is another one."""
    if checkpoint.batches("commits") or checkpoint.batches("offsets") != [0]:
        return None
    local = "://" not in checkpoint.location
    command = f" ({shlex.join(['rm', '-r', checkpoint.location])})" if local else ""
    return (
        "has a first batch that is planned and not done. If a start that stopped with StartsElsewhere has "
        f"left it, that start has written nothing: remove the folder{command}, and restore it then. Else"
    )


class Spool:
    """The newest value of each key, in a file: a state may be larger than memory."""

    def __init__(self, room: IO[bytes]) -> None:
        self._room = room
        self._places: dict[Key, tuple[int, int]] = {}

    def put(self, key: Key, value: bytes) -> None:
        """Keep a record in place of an earlier one."""
        self._places[key] = (self._room.seek(0, 2), len(value))
        self._room.write(value)

    def drop(self, key: Key) -> None:
        """Forget a record."""
        self._places.pop(key, None)

    def whole(self, keys: list[Key]) -> bytes:
        """The records one after another; what is missing is left out."""
        return b"".join(self._piece(*self._places[key]) for key in keys if key in self._places)

    def _piece(self, at: int, size: int) -> bytes:
        self._room.seek(at)
        return self._room.read(size)


def _written(
    checkpoint: Checkpoint,
    sink: Sink,
    decision: Decision,
    saved: Saved,
    manifest: Manifest,
    kept: Spool,
) -> Restored:
    if not all(map(is_of_checkpoint, manifest.files)):
        raise _lost(
            sink, decision, saved, f"the save of batch {saved.batch}: it has files that are no checkpoint's"
        )

    def content(name: str) -> bytes:
        expected = manifest.files[name]
        data = kept.whole(keys_of(sink.id, FILE, name, expected.size))
        if Content.of(data) != expected:
            raise _lost(sink, decision, saved, f"{name} of the save of batch {saved.batch}")
        return data

    logs = {name for name in manifest.files if name.startswith(_LOGS)}
    first = f"offsets/{min(saved.batch, decision.batch.batch_id)}"
    if first not in logs:
        raise _lost(sink, decision, saved, f"{first} of the save of batch {saved.batch}")
    since = _since(sink, decision, saved, kept)
    planned = _planned(sink, decision, saved, content(first), since)
    for name in manifest.files:
        content(name)  # what is lost is found before anything is written: else the folder could not be used
    checkpoint.note(UNFINISHED, "{}")
    for name in sorted(manifest.files.keys() - logs):
        checkpoint.put(name, content(name))
    note_decided(checkpoint, since)
    if decision.start is not None:
        NotedStarts(decision.start.history).write(checkpoint)
    noted = ((decision.batch.batch_id, decision.places),)
    NotedPlaces(noted, decision.older, digest=decision.batch.digest, decided=True).write(checkpoint)
    for name in sorted(logs):
        checkpoint.put(name, planned if name == first else content(name))
    note_restored(checkpoint, manifest.text())
    checkpoint.forget(UNFINISHED)
    size = sum(file.size for file in manifest.files.values())
    place, query = checkpoint.location, manifest.query
    return Restored(place, query, saved.batch, decision.batch.batch_id, len(manifest.files), size)


def _since(sink: Sink, decision: Decision, saved: Saved, kept: Spool) -> dict[int, DecidedBatch]:
    """The saved batch and those decided since; empty if there are none since."""
    found: dict[int, DecidedBatch] = {}
    last = decision.batch.batch_id
    for number in range(saved.batch, last + 1) if saved.batch < last else ():
        data = kept.whole([Key(sink.id, DECIDED, str(number))])
        try:
            found[number] = DecidedBatch.parse(data.decode())
        except ValueError as error:
            raise _lost(
                sink, decision, saved, f"batch {number}, decided since batch {saved.batch} was saved"
            ) from error
    return found


def _planned(
    sink: Sink, decision: Decision, saved: Saved, text: bytes, since: Mapping[int, DecidedBatch]
) -> bytes:
    """The offset log's entry of the saved batch, with the ends of the batches decided since; or that of the
    last decided batch, if the one after it is to be planned."""
    first = _parsed(sink, min(saved.batch, decision.batch.batch_id), text.decode())
    after = [_parsed(sink, number, one.planned) for number, one in since.items() if number > saved.batch]
    last = after[-1] if after else first
    if not decision.batch.repeats(decision.batch._replace(digest=last.digest)):
        raise _lost(sink, decision, saved, f"the source offsets of {decision.batch}")
    odd = [one.batch_id for one in after if list(one.by_name) != list(first.by_name)]
    odd += [first.batch_id] if after and len(first.by_name) < len(first.sources) else []
    if odd:
        raise NotRestorable(
            f"sink {sink.id}: the query has other sources since batch {odd[0]}, and its state was saved with "
            f"batch {saved.batch}: the batches between cannot be run again. Begin it anew"
        )
    if not after:
        return text
    names = list(first.by_name)
    ends = [json.dumps(leading_to(first.by_name[n], [one.by_name[n] for one in after])) for n in names]
    return with_ends(text.decode(), ends).encode()


def _parsed(sink: Sink, number: int, text: str) -> Planned:
    try:
        return Planned.parse(number, text)
    except FormatError as error:
        raise NotRestorable(
            f"sink {sink.id}: the offset log's entry of batch {number}: {error}. Begin the query anew"
        ) from error


def _lost(sink: Sink, decision: Decision, saved: Saved, what: str) -> NotRestorable:
    return NotRestorable(
        f"sink {sink.id}: topic {saved.topic}, partition {saved.partition}, has lost {what}: was the topic "
        "deleted, or its first records, or has it another cleanup.policy than compact? Nothing was restored. "
        "If there is no other copy of the checkpoint, begin with a new one: with startingOffsets=committed "
        f"and start.accepted={WORD_STATE}:{decision.word}, and windows that are open now lose the rows "
        "that they have; or write everything again, into another topic and with another transactional.id"
    )
