"""Saves a query's checkpoint under the decision of a batch: as it is when the batch has been planned.

At that time the state is that of the batch before, and so are the files that Spark has written for good.
Spark runs the batch again from there, and finds it decided. Batches between two saves add only their entry of
the offset log: Spark runs them again, too.

The checkpoint has a note of the last two saves, so that only what is new is written. The last decision says
which of them counts. If none does, the topic is read.
"""

import json
import logging
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from eoslog.client.admin.topics import EARLIEST, list_offsets
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.retry import retrying
from eoslog.connector.checkpoint.checkpoint import RESTORE, Checkpoint, CheckpointUnreadable
from eoslog.connector.commit.places import OpenRows, told_by
from eoslog.connector.commit.saved_state import Saved, TaskContents, Written, log_of
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.saved.read_back import ManifestPieces, records_of
from eoslog.connector.saved.run_again import check_operators
from eoslog.connector.saved.state_files import (
    DECIDED,
    FILE,
    MANIFEST,
    Content,
    DecidedBatch,
    Key,
    Manifest,
    StateGone,
    files_before,
    is_that_of,
    is_versioned,
    keys_of,
    pieces,
)
from eoslog.errors.pages import see
from eoslog.protocol.encode import encode_batches

logger = logging.getLogger(__name__)

_FROM_THE_TOPIC = (
    "bring a copy of the checkpoint back; or write it again into an empty folder, from the topic of "
    "state.topic: eoslog checkpoint restore"
)
NOTE = "saved"
"""The name of the checkpoint's note of its last two saves."""
_CUT = (
    "state.topic: the log of %s is another one than at the last save (it was %s, and is %s): the topic was "
    "made anew, or its first records were deleted. The whole state is saved again with %s. "
    f"{see('the-state-is-saved-again')}"
)
_TOGETHER = 4 * 1024 * 1024
"""Bytes of records that are encoded at once."""

Record = tuple[Key, bytes | None]


@dataclass(frozen=True)
class CheckpointSaving:
    """Saves one batch. `every`: a save every so many batches. `max_batch_bytes`: of a record batch.
    `is_done`: the batch is done in the checkpoint, and its decision is moved: what is saved is what Spark
    needs to plan the next one."""

    cluster: Cluster
    checkpoint: Checkpoint
    sink: str
    batch: Batch
    topic: str
    every: int
    max_batch_bytes: int
    is_done: bool = False

    def write(self, own: Participant, last: Saved | None, contents: TaskContents) -> Written:
        """Write what the batch adds to `last`. Raises CheckpointUnreadable, OptionError, ProduceFailed,
        KafkaError."""
        partitions, topic_id = self._looked_up()
        if last is not None and (last.topic != self.topic or last.partition >= partitions):
            last = None
        number = self._number
        partition = zlib.crc32(self.sink.encode()) % partitions if last is None else last.partition
        log_now = self._log(partition, topic_id)
        is_there = last is not None and last.log == log_now
        if last is not None and is_there and number % self.every and last.batch < number:
            if last.batch + 1 == number:  # the option may have been 1 until now
                check_operators(self.checkpoint, self.every)
            return Written(last, self._produce(own, last.partition, [self._decided(contents)]))
        if last is not None and last.log and not is_there:
            logger.warning(_CUT, f"{self.topic}-{partition}", last.log, log_now, self.batch)
        return self._save(own, last, contents, partition, log_now)

    def _log(self, partition: int, topic_id: str | None) -> str:
        where = (self.topic, partition)
        return log_of(topic_id, list_offsets(self.cluster, {where: EARLIEST}, committed=False)[where])

    @property
    def _number(self) -> int:
        """The batch that Spark runs with what is saved."""
        return self.batch.batch_id + self.is_done

    def check(self) -> None:
        """Raise CheckpointUnreadable if a file is missing, before anything is written."""
        self._names()

    def _decided(self, contents: TaskContents) -> Record:
        number = self.batch.batch_id
        planned = self.checkpoint.content(f"offsets/{number}").decode()
        return Key(self.sink, DECIDED, str(number)), DecidedBatch(planned, *contents).text().encode()

    def _save(
        self,
        own: Participant,
        last: Saved | None,
        contents: TaskContents,
        partition: int,
        log_now: str,
    ) -> Written:
        check_operators(self.checkpoint, self.every)
        known, there = self._known(last, partition, log_now)
        manifest, changed = self._collected(known)
        text = manifest.text()
        packed = text.encode()
        size, digest = Content.of(packed)
        _Note.write(self.checkpoint, (known.text(), text))
        records = [] if self.is_done else [self._decided(contents)]  # if no save follows the next batch
        kept = {
            *manifest.keys(self.sink),
            *keys_of(self.sink, MANIFEST, "", size),
            *(key for key, _ in records),
        }
        every = chain(records, self._all_records(there - kept, changed, packed))
        rows = self._produce(own, partition, every)
        stateful = manifest.is_stateful
        return Written(Saved(self.topic, partition, self._number, size, digest, stateful, log_now), rows)

    def _looked_up(self) -> tuple[int, str | None]:
        """The number of the topic's partitions, and its id."""
        # asked anew: the topic may have been made anew
        info = retrying(self.cluster, f"Metadata of {self.topic}", lambda: self.cluster.describe(self.topic))
        return len(info.leaders), info.topic_id

    def _known(self, last: Saved | None, partition: int, log_now: str) -> tuple[Manifest, set[Key]]:
        """The last save, and the keys of all records that are there. The topic is read without a last save or
        a note of it, and if the topic is another one now, or its beginning was cut."""
        nothing = Manifest(self.batch.query_id, -1, {})
        back = self.is_done or (last is not None and last.batch >= self._number)  # files have new contents
        noted = last is not None and not back and last.log == log_now
        found = _Note.read(self.checkpoint, last) if noted and last is not None else None
        if found is not None and last is not None:
            own = keys_of(self.sink, MANIFEST, "", last.size)
            between = range(last.batch, self.batch.batch_id)
            decided = (Key(self.sink, DECIDED, str(number)) for number in between)
            return found, {*found.keys(self.sink), *own, *decided}
        kept = ManifestPieces()
        for key, value in records_of(self.cluster, self.topic, partition, self.sink):
            if value is None:
                kept.drop(key)
            else:
                kept.put(key, value)
        found = None if last is None or back else kept.manifest(self.sink, last)
        ours = found is not None and found.query == self.batch.query_id and found.keys(self.sink) <= kept.keys
        return (found if ours and found is not None else nothing), kept.keys

    def _collected(self, known: Manifest) -> tuple[Manifest, dict[str, Content]]:
        """What is to be saved, and which files of it are not there yet. Of files that do not change, those
        that are there are not read again."""
        checkpoint = self.checkpoint
        contents: dict[str, Content] = {}
        for name in self._names():
            before = known.files.get(name)
            same = before is not None and is_versioned(name)
            now = before if same and before is not None else Content.of(checkpoint.content(name))
            contents[name] = now
        changed = {name: now for name, now in contents.items() if known.files.get(name) != now}
        return Manifest(self.batch.query_id, self._number, contents), changed

    def _names(self) -> list[str]:
        """The names of the files to save."""
        names, read = self.checkpoint.files(), self.checkpoint.content
        try:
            return files_before(self._number, names, read, planned=not self.is_done)
        except StateGone as error:
            raise CheckpointUnreadable(
                self.checkpoint.location, f"{error}; nothing was decided", _FROM_THE_TOPIC
            ) from error

    def _all_records(self, gone: set[Key], changed: dict[str, Content], manifest: bytes) -> Iterator[Record]:
        yield from ((key, None) for key in sorted(gone))
        for name, content in changed.items():
            data = self.checkpoint.content(name)
            if Content.of(data) != content:
                raise CheckpointUnreadable(
                    self.checkpoint.location,
                    f"{name} changes while it is saved: does another query use this checkpoint? Nothing was "
                    "decided",
                )
            yield from pieces(self.sink, FILE, name, data)
        yield from pieces(self.sink, MANIFEST, "", manifest)

    def _produce(self, own: Participant, partition: int, records: Iterable[Record]) -> tuple[OpenRows, ...]:
        """Write records in the sink's own transaction, and wait for their acknowledgement."""
        with Producer(self.cluster, identity=own.identity, transactional_id=own.name) as producer:
            for together in _in_parts(records):
                keys = pa.array([key.packed() for key, _ in together], pa.binary())
                values = pa.array([value for _, value in together], pa.binary())
                now_ms, limit = int(time.time() * 1000), self.max_batch_bytes
                batches = encode_batches(keys, values, None, now_ms, codec=0, max_batch_bytes=limit)
                for batch in batches:
                    producer.send(self.topic, partition, batch)
            producer.flush()
            return told_by(own.identity, producer.first_rows, producer.last_sequence)


def _in_parts(records: Iterable[Record]) -> Iterator[list[Record]]:
    part: list[Record] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record[1] or b"")
        if size >= _TOGETHER:
            yield part
            part, size = [], 0
    if part:
        yield part


class _Note:
    """The checkpoint's note of its last two saves. It is written before the later of them is decided."""

    @staticmethod
    def read(checkpoint: Checkpoint, last: Saved) -> Manifest | None:
        """The save that a decision names. None: the note has other saves."""
        text = checkpoint.noted(NOTE)
        try:
            found: Any = json.loads(text or "{}")
            texts = [str(one) for one in found.get("saves", ()) if is_that_of(last, str(one))]
            return Manifest.parse(texts[0]) if texts else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointUnreadable(
                checkpoint.location, f"eoslog/{NOTE} cannot be read: {error}", RESTORE
            ) from error

    @staticmethod
    def write(checkpoint: Checkpoint, saves: tuple[str, ...]) -> None:
        """Note saves, of which one is decided, or will be."""
        checkpoint.note(NOTE, json.dumps({"version": 1, "saves": saves}))


def note_restored(checkpoint: Checkpoint, manifest: str) -> None:
    """Note the save that a checkpoint was restored from."""
    _Note.write(checkpoint, (manifest,))
