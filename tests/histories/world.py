"""A history happens here, on the ground that it is given: queries, writes and people's acts, act by act."""

import json
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from eoslog.connector.checkpoint.files import LocalFiles
from eoslog.connector.checkpoint.spark_logs import source_position
from eoslog.connector.commit.faults import StartsElsewhere
from eoslog.connector.commit.write_token import Token, sink_of_query
from eoslog.errors import EoslogError
from eoslog.protocol.errors import KafkaError
from tests.histories import judge
from tests.histories.ending import end
from tests.histories.ground import App, Cluster, Ground, SimGround
from tests.histories.judge import Finding, Lineage
from tests.histories.mishaps import MISHAPS, accept_unseen
from tests.histories.processes import Strike
from tests.histories.query import Query, age, identity, logged
from tests.histories.shapes import FILES, SAVED, SINKS, SOURCES, Act
from tests.histories.sim_connection import Killed
from tests.histories.spark import Plan, Stopped, TaskFailed, Told
from tests.histories.tables import Table

LOUD = (EoslogError, KafkaError)
_STATELESS = (
    ("id", None), ("processing.guarantee", "at_least_once"), ("processing.guarantee", "at_most_once"),
)  # fmt: skip


class World:
    """One history. `acts` are done by `play`; `findings` are what was broken in the end."""

    def __init__(self, folder: Path, ground: Ground | None = None) -> None:
        self.folder = folder
        self.ground: Ground = ground or SimGround(folder)
        self.clock = self.ground.clock
        self.servers = self.ground.source["kafka.bootstrap.servers"]
        """The cluster that people look at."""
        self.queries: dict[str, Query] = {}
        self.lineages: list[Lineage] = []
        self.writes: list[tuple[Lineage, dict[str, str]]] = []
        self.findings: list[Finding] = []
        self.errors: Counter[str] = Counter()
        self.warned: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.told: list[str] = []
        self.acts_done = 0
        self._numbers = Counter[str]()
        self._snapshots: list[Any] = []
        self._cuts: dict[str, Any] = {}
        self._acts: list[Act] = []
        self._depth = 0
        self.deleted: Counter[str] = Counter()
        self.removed: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self.gone: Counter[str] = Counter()
        self.unseen: Counter[str] = Counter()
        self.put_back: dict[Path, tuple[int, int]] = {}
        self.blind: list[tuple[Lineage, dict[str, dict[str, int]]]] = []
        """Of checkpoints, when brokers were put back to a copy: batches done then, and when it was made."""
        self.synced: set[str] = set()
        """Files of checkpoints that a power cut does not take."""
        self.tables: dict[str, Table] = {}
        self.meddled: set[str] = set()
        self.parted = False  # partitions and groups were put back to several moments
        """Groups that strangers have moved."""
        self._living: App | None = None
        for name, partitions in (SOURCES | SINKS | {FILES: 1, SAVED: 1}).items():
            self.cluster.create(name, partitions)

    @property
    def cluster(self) -> Cluster:
        """The one that people look at."""
        return self.ground.cluster

    def cluster_of(self, ends: Mapping[str, Any]) -> Cluster:
        """That of which offsets are."""
        names = (key.removeprefix("cluster-id:cluster-") for key in ends)
        return next(
            (self.ground.sites[s] for n in names if (s := f"{n}:9092") in self.ground.sites), self.cluster
        )

    def turn(self, servers: str) -> None:
        """From now on people look at that cluster."""
        self.servers = servers
        self.ground.turn(servers)

    # -- the frame ------------------------------------------------------------------------------

    @contextmanager
    def around(self) -> Iterator[None]:
        """Within it the connector lives in this world."""
        with self.ground.around(self.warned), self._seeing_syncs():
            yield

    @contextmanager
    def _seeing_syncs(self) -> Iterator[None]:
        sync, put = LocalFiles.sync, LocalFiles.put

        def seen(files: LocalFiles, names: Iterable[str]) -> None:
            self.synced |= {files._path(name) for name in names}

        def written(files: LocalFiles, folder: str, name: str, data: bytes, *, durable: bool = True) -> None:
            put(files, folder, name, data, durable=durable)
            path = files._path(f"{folder}/{name}")
            self.synced = self.synced | {path} if durable else self.synced - {path}

        with patch.object(LocalFiles, "sync", seen), patch.object(LocalFiles, "put", written):
            yield
        assert (LocalFiles.sync, LocalFiles.put) == (sync, put)

    def play(self, acts: Sequence[Act]) -> list[Finding]:
        """Do all acts and judge."""
        with self.around():
            self._acts = list(acts)
            self._until_wake()
            end(self)
        return self.findings

    def _until_wake(self) -> None:
        while self._acts:
            act, *_ = (self._acts.pop(0),)
            if act[0] == "wake":
                return
            self.acts_done += 1
            if (query := self.queries.get(str(act[1]) if len(act) > 1 else "")) is not None:
                self.turn(query.servers)
            if act[0] in MISHAPS:
                MISHAPS[act[0]](self, *act[1:])
            else:
                getattr(self, f"do_{act[0]}")(*act[1:])
            self.clock.sleep(0.01)

    # -- acts -----------------------------------------------------------------------------------

    def do_cluster(self, tv: int, keeps: bool) -> None:
        self.cluster.become(tv, keeps)

    def do_query(self, name: str, options: dict[str, str]) -> None:
        """A user writes a query down. Keys beside the connector's: in, told, token, starting, named,
        small, ahead, state (every so many batches the checkpoint is saved), union,
        rows (they name the topic), each (df.write in foreachBatch has no token), tables (of a fan-out),
        second (the topic of a second df.write). With deadletter.topic every other row is a dead letter."""
        given = dict(options)
        topic, out = given.pop("in", "in"), given.pop("out", "out")
        told, token = given.pop("told", "yes") == "yes", given.pop("token", None)
        starting, ident = given.pop("starting", "earliest"), given.pop("id", None)
        most, small = given.pop("most", None), given.pop("small", None)
        source_name, ahead = given.pop("named", None), given.pop("ahead", "no") == "yes"
        source = {**self.ground.source, "subscribe": topic, "startingOffsets": starting}
        if most:
            source["maxOffsetsPerTrigger"] = most
        if small:
            source["small.batch.max.offsets"] = small
        every, union = given.pop("state", None), given.pop("union", "no") == "yes"
        by_rows, each = given.pop("rows", "no") == "yes", given.pop("each", "no") == "yes"
        given_second = given.pop("second", None)
        tables = [one for one in given.pop("tables", "").split(",") if one]
        token = "each" if each else "fan" if tables else token
        sink = {**self.ground.sink, "topic": out, **given}
        if every and topic == FILES:
            every = "1"  # batches between two saves could not be planned again
        if every:
            sink |= {"state.topic": SAVED, "state.every.batches": every}
        if token:
            sink.pop("kafka.group.id", None)
        query = Query(self, name, source, sink, self.lineage(name, topic), told, token, source_name, ahead)
        query.union, query.by_rows, query.each, query.tables = union, by_rows, each, tables
        for one in tables:
            if one not in self.tables:
                self.tables[one] = Table(one, self.folder / f"table-{one}")
        query.second = given_second if token and given_second != out and not tables else None
        query.set_id(ident)
        query.checkpoint = self.folder / uuid.uuid4().hex
        self.queries[name] = query

    def do_produce(self, topic: str, count: int) -> None:
        if topic not in self.cluster.topics:
            return
        partitions = self.cluster.partitions(topic)
        numbers = [self._next("record") for _ in range(count)]
        for at in range(partitions):
            mine = [f"{topic}/{number}" for number in numbers if number % partitions == at]
            if mine:
                self.cluster.take(topic, at, mine)

    def do_run(self, name: str, triggers: int, strike: tuple[Any, ...] | None = None) -> None:
        """Triggers of a query; it is started if it does not run."""
        query = self.queries.get(name)
        if query is None:
            return
        for number in range(triggers):
            if not self.trigger(query, self._strike(strike) if number == 0 else None):
                return

    def do_now(self, name: str) -> None:
        """A run of Trigger.AvailableNow, to its end."""
        self.do_stop(name)
        query = self.queries.get(name)
        going = query is not None
        while going and query is not None:
            before = age(query.checkpoint)
            going = self.trigger(query, None, until_now=True) and age(query.checkpoint) != before
        self.do_stop(name)

    def do_living(self, name: str, living: bool) -> None:
        """From now on the query starts in the application that other such queries have, if it lives."""
        if name in self.queries:
            self.queries[name].living = living

    def do_stop(self, name: str) -> None:
        query = self.queries.get(name)
        if query is not None and query.run is not None:
            query.run.stop()
            query.run = None

    def do_kill(self, name: str) -> None:
        query = self.queries.get(name)
        if query is not None and query.run is not None:
            query.run.app.kill()
            query.run = None

    def do_anew(self, name: str, starting: str) -> None:
        """A new checkpoint. `committed` carries on; the others begin another lineage."""
        query = self.queries.get(name)
        if query is None:
            return
        self.do_stop(name)
        if starting == "committed":
            if not query.has_group or query.token or not query.lineage.done or query.reads_files:
                return
            query.new_checkpoint("committed")
        else:
            query.begin_anew(starting)

    def do_follow(self, name: str, old: str) -> None:
        """`name` takes over from `old`, which may live still: new checkpoint, same names, committed."""
        query, before = self.queries.get(name), self.queries.get(old)
        if query is None or before is None or query is before or before.token or not before.lineage.done:
            return
        if not before.has_group or before.reads_files or not self.is_known(before):
            return
        self.do_stop(name)
        self.turn(before.servers)
        if before.ids[-1] is None:
            self.do_stop(old)  # without a name in common nothing keeps the two apart
        if query.lineage is not before.lineage and not query.left:
            query.lineage.live = False
        query.lineage, query.token, query.told = before.lineage, None, before.told
        query.union, query.by_rows, query.each, query.tables = before.union, before.by_rows, False, ()
        query.second = None
        query.source, query.sink, query.ids = dict(before.source), dict(before.sink), list(before.ids)
        query.new_checkpoint("committed")
        query.before = before.newest  # not its own, of another pipeline
        query.former = before.checkpoint, before.source["startingOffsets"]
        query.unknown = before.unknown
        query.used, query.left, before.left = True, False, True

    def do_fork(self, name: str, old: str, same: bool) -> None:
        """`name` starts on a copy of `old`'s checkpoint: the same pipeline, or another of its own names."""
        query, before = self.queries.get(name), self.queries.get(old)
        if (
            query is None
            or before is None
            or query is before
            or before.token
            or not before.checkpoint.exists()
        ):
            return
        if not before.lineage.began or age(before.checkpoint)[0] < 0:
            return
        self.do_stop(name)
        self.turn(before.servers)
        query.aside.append((query.lineage, query.checkpoint))  # the user does not throw it away
        query.checkpoint = self.folder / uuid.uuid4().hex
        shutil.copytree(before.checkpoint, query.checkpoint)
        if query.lineage is not before.lineage and not query.left:
            query.lineage.live = False
        query.source, query.sink, query.token, query.told = (
            dict(before.source),
            dict(before.sink),
            None,
            before.told,
        )
        query.ids, query.each, query.tables, query.second = list(before.ids), False, (), None
        query.union, query.by_rows = before.union, before.by_rows
        query.used = True
        if same:
            query.lineage, query.left, before.left = before.lineage, False, True
            return
        query.left = False
        query.lineage = self.lineage(name, before.lineage.topic)
        completed, planned = age(query.checkpoint)  # what is planned begins where the one before it ends
        query.lineage.before = query.behind(max(completed, planned - 1)) | before.lineage.before
        held = judge.in_log(self.cluster, before.lineage.topic)
        query.lineage.before |= before.lineage.done - held  # brokers may be put back, and have them again
        query.lineage.began = True
        query.set_id(f"{name}-fork-{len(query.ids)}")
        if "kafka.group.id" in query.sink:
            query.sink["kafka.group.id"] = f"group-{name}-fork-{len(query.ids)}"

    def do_backup(self, name: str) -> None:
        query = self.queries.get(name)
        if query is not None and query.checkpoint.exists():
            copy = self.folder / uuid.uuid4().hex
            shutil.copytree(query.checkpoint, copy)
            query.copies.append(copy)

    def do_restore(self, name: str) -> None:
        query = self.queries.get(name)
        if query is None or not query.copies:
            return
        copy = query.copies[-1]
        if identity(copy) != identity(query.checkpoint):
            return
        self.do_stop(name)
        query.aside.append((query.lineage, query.checkpoint))
        query.checkpoint = self.folder / uuid.uuid4().hex
        shutil.copytree(copy, query.checkpoint)

    def do_set(self, name: str, option: str, value: str | None) -> None:
        """An option is changed, from the next start on."""
        query = self.queries.get(name)
        if query is None:
            return
        self.do_stop(name)
        if "state.topic" in query.sink and (option, value) in _STATELESS:
            return  # such a query is refused at once
        if option == "topic" and value in (query.second, query.sink.get("deadletter.topic")):
            return  # two writes to one topic need tokens of their own; dead letters go to another topic
        if option == "deadletter.topic" and (query.token or query.by_rows or value == query.sink["topic"]):
            return
        again = query.lineage.batches or any(n > age(query.checkpoint)[0] for _, n in query.lineage.noted)
        if query.token is not None and option == "topic" and again:
            return  # the same token for another topic is another write (docs/guarantees.md)
        if option == "id":
            if not self._is_taken(query, value):
                query.set_id(value)
                if age(query.checkpoint)[0] < 0 and query.elsewhere == query.checkpoint:
                    self.accept_loss(query)  # who begins there under another name was told
        elif option == "told":
            query.told = value == "yes"
        elif option == "most" and value is not None:
            query.source["maxOffsetsPerTrigger"] = value
        elif value is None:
            query.sink.pop(option, None)
        elif query.token is None or option not in ("kafka.group.id", "processing.guarantee"):
            query.sink[option] = value
        if option == "topic":  # what a copy of these names was tried out with is there
            for tried in self.lineages:
                if tried.name.startswith(f"{query.lineage.name}-tried"):
                    query.lineage.may_lack |= set(tried.tried)

    def _is_taken(self, query: Query, ident: str | None) -> bool:
        """Two queries on copies of one checkpoint and with one transactional.id are one query to everybody:
        what one has written, the other has. exactly-once.md says not to do this."""
        copies = [q for q in self.queries.values() if identity(q.checkpoint) == identity(query.checkpoint)]
        others = [q for q in copies if q.lineage is not query.lineage and identity(q.checkpoint)]
        return any(ident in q.ids for q in others)

    def do_write(
        self, token: str | None, ident: str | None, topic: str, rows: str, strike: Any = None
    ) -> None:
        """df.write of the rows called so. The same token with the same rows and topic is the same write."""
        options = {**self.ground.sink, "topic": topic}
        if token is not None:
            options["write.token"] = token
        if ident is not None:
            options["transactional.id"] = ident
        name = f"w-{ident}-{token}-{topic}-{rows}" if token else f"w-{self._next('write')}-{rows}"
        lineage = next((w for w, _ in self.writes if w.name == name), None)
        if lineage is None:
            lineage = Lineage(name, topic, began=True)
            self.writes.append((lineage, options))
            lineage.tried = {f"{rows}.{n}": {"exactly_once"} for n in range(4)}
        self.write(lineage, options, strike)

    def write(self, lineage: Lineage, options: dict[str, str], strike: Any = None) -> str:
        """What the error says that stops it; "": none does."""
        app, name = self.ground.application(), lineage.name
        rows = sorted(lineage.tried)
        batches = [[f"{name}:{row}" for row in half] for half in (rows[:2], rows[2:])]
        readers = [lambda b=b: iter([_rows(b)]) for b in batches]
        app.arm(self._strike(strike))
        job = self.ground.job(app, options)
        outcome = self._guarded(lambda: job.run(readers), app, None)
        if outcome == "done":
            lineage.done |= set(lineage.tried)
        return self.told[-1] if outcome == "loud" else ""

    def do_delete(self, topic: str) -> None:
        """Deleted, and created again under its name."""
        if topic not in self.cluster.topics:
            return
        before = judge.written(self.cluster, SINKS)
        partitions = self.cluster.partitions(topic)
        self._cuts.pop(topic, None)
        self.cluster.delete(topic)
        self.cluster.create(topic, partitions)
        self.deleted += before - judge.written(self.cluster, SINKS)

    def do_says(self, name: str, starting: str) -> None:
        """Another startingOffsets under a checkpoint that has begun."""
        self.queries[name].said = starting

    def do_rename(self, name: str, source: str) -> None:
        """Another readStream.name(). A batch write sees no checkpoint, so it cannot know."""
        query = self.queries.get(name)
        if query is not None and query.source_name is not None and query.told and query.token is None:
            query.source_name = source

    def do_drop(self, topic: str) -> None:
        """Deleted for good."""
        if topic in self.cluster.topics:
            self._cuts.pop(topic, None)
            self.cluster.delete(topic)

    def do_grow(self, topic: str) -> None:
        if topic in self.cluster.topics:
            self.cluster.add_partition(topic)

    def do_snapshot(self) -> None:
        ages = {path: age(path)[0] for path in self.folder.iterdir()}
        self._snapshots.append((self.cluster.snapshot(), ages))

    def do_restored(self) -> None:
        """The cluster is started on its last snapshot."""
        if not self._snapshots:
            return
        now = judge.written(self.cluster, SINKS)
        disk, ages = self._snapshots[-1]
        files = self.cluster.plain(FILES)
        self.cluster.restore(disk)
        later = [name for name in files if name not in set(self.cluster.plain(FILES))]
        if later:  # files are not the cluster's
            self.cluster.take(FILES, 0, later)
        for path in self.folder.iterdir():
            self.put_back[path] = (age(path)[0], ages.get(path, -1))
        self._cuts.clear()
        for query in self.queries.values():
            own = query.ids[-1] and self.cluster.places_of(f"{query.ids[-1]}/offsets")
            query.unknown |= not own and not self.has_notes(query)  # the copy is older than its first batch
        self._count_gone(now)

    def _count_gone(self, now: Counter[str]) -> None:
        """Rows that the brokers have lost: `now` were there before."""
        gone = now - judge.written(self.cluster, SINKS)
        self.gone += gone
        # Open in the copy, and of a write that is done: nobody comes back to end it, and a token sees no
        # checkpoint (docs/guarantees.md).
        unseen = now - judge.seen(self.cluster, SINKS)
        self.unseen += unseen
        for lineage, _ in self.writes:
            lineage.may_lack |= {uid for uid in lineage.tried if gone[f"{lineage.name}:{uid}"]}
            lineage.may_lack |= {uid for uid in lineage.done if unseen[f"{lineage.name}:{uid}"]}
        for lineage in [q.lineage for q in self.queries.values() if q.token is not None]:
            lineage.may_lack |= {uid for uid in lineage.done if unseen[f"{lineage.name}:{uid}"]}
            lineage.may_lack |= {uid for uid in lineage.tried if self.unread[f"{lineage.name}:{uid}"]}
            second = gone + unseen
            lineage.second_lacks |= {uid for uid in lineage.tried if second[f"{lineage.name}+:{uid}"]}
        compares = "processing.guarantee", "exactly_once"
        current = [
            q.lineage
            for q in self.queries.values()
            if q.token is None and q.sink.get(*compares) == compares[1]
        ]
        for lineage in self.lineages:
            lacks = {uid for uid in lineage.tried if gone[f"{lineage.name}:{uid}"]}
            plain = {uid for uid in lacks if lineage.tried[uid] == {"at_least_once"}}
            plain |= lacks & lineage.unnoted  # nor does eoslog know what Spark's own connector wrote
            lineage.may_lack |= plain if lineage in current else lacks  # at_least_once compares nothing
        for query in self.queries.values():  # what comes below offsets that Spark's own connector has noted
            newest = age(query.checkpoint)[1]
            if newest < 0 or query.reads_files or not query.lineage.sparked:
                continue
            stands, below = (
                source_position(json.dumps(logged(query.checkpoint, newest))),
                dict[str, dict[str, int]](),
            )
            for (topic, partition), at in stands.offsets.items():
                if at and (topic, partition) not in stands.epochs:
                    below.setdefault(topic, {})[str(partition)] = at
            self.blind += [(query.lineage, below)] if below else []

    def do_keep(self, topic: str) -> None:
        """A replica falls behind: it has the log up to here."""
        if topic in self.cluster.topics:
            self._cuts[topic] = self.cluster.logs_of(topic)

    def do_cut(self, topic: str) -> None:
        """That replica becomes the leader."""
        if topic in self.cluster.topics and topic in self._cuts:
            now = judge.written(self.cluster, SINKS)
            self.cluster.cut(topic, self._cuts[topic])
            self._count_gone(now)

    def do_restart(self) -> None:
        self.cluster.restart()

    def do_wait(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    # -- how they are done ------------------------------------------------------------------------

    def lineage(self, name: str, topic: str) -> Lineage:
        """A new one."""
        found = Lineage(f"{name}{self._next(name)}", topic)
        self.lineages.append(found)
        return found

    def accept_loss(self, query: Query) -> None:
        """Somebody was told that source records are gone, and goes on."""
        held = judge.in_log(self.cluster, query.lineage.topic)
        query.lineage.accepted |= held
        query.lineage.may_lack |= held
        query.lineage.may_double |= held

    def _accept_namesakes(self, query: Query) -> None:
        """To the cluster two queries of one transactional.id and group are one: who begins where the one that
        wrote last has ended goes on, as docs/exactly-once.md says. With another group it stops where the
        sink's last batch has not ended, and goes on behind what that one's query has read."""
        if query.ids[-1] is None:
            return
        others = (line for line in self.lineages if line is not query.lineage and "-tried" not in line.name)
        for other in others:  # what a copy wrote into another topic was not written here
            if age(query.checkpoint)[1] < 0 and query.names in other.names:
                self.accept_loss(query)
            if any(query.ids[-1] == ident for ident, _ in other.names):
                query.lineage.may_lack |= set(other.tried)

    def has_notes(self, query: Query) -> bool:
        """Whether its group, the sink's before the source's, has a note of where a query has ended, in any
        partition that it reads."""
        group = query.sink.get("kafka.group.id") or query.source.get("kafka.group.id", "")
        noted = {topic for topic, _ in self.cluster.places_of(group, noted=True)}
        return bool(noted & {*query.lineage.topic.split(",")})

    def is_known(self, query: Query) -> bool:
        """Whether a batch has had its transactional.id, or has noted in its group where it ended."""
        names = {ident for ident, _ in query.lineage.names if ident is not None}
        return query.ids[-1] in names or self.has_notes(query)

    def had_group(self, query: Query) -> bool:
        """Whether the query's group was given to batches of its pipeline."""
        return query.names[1] in query.lineage.groups

    def tells_of_another(self, query: Query, text: str) -> bool:
        """Whether an error says that a query of another pipeline has taken this one's place."""
        left = re.search(r"was left for sink (\S+) by", text)
        if left is not None and left.group(1) not in query.lineage.sinks:
            return True
        told = re.search(r"query (\S+) has taken the place", text)
        others = [q for q in self.queries.values() if q.lineage is not query.lineage]
        return told is not None and any(told.group(1) in identity(q.checkpoint) for q in others)

    def publish(self, query: Query, batch: int, ident: str, missing: int, second: bool = False) -> None:
        """Write rows of a batch of the query of that id by hand; so many are said to be missing. Without an
        id it is the batch of a token: that of who has written it first. `second`: of its second write."""
        known = [q for q in self.queries.values() if ident and ident in identity(q.newest or q.checkpoint)]
        owner = known[0] if known else query
        first = (line for line in self.lineages if line.sinks & owner.lineage.sinks and batch in line.batches)
        of_line = owner.lineage if ident else next(first, owner.lineage)
        of_batch = of_line.noted.get((ident, batch)) or of_line.batches.get(batch, of_line.done)
        if second and owner.second is not None:
            self._publish(replace(of_line, name=f"{of_line.name}+"), owner.second, of_batch, missing)
        else:
            self._publish(of_line, owner.sink["topic"], of_batch, missing)

    def publish_rest(self, query: Query) -> None:
        """Write the rows by hand of batches that are done and that nobody sees."""
        self._publish(query.lineage, query.sink["topic"], query.lineage.done, 0)

    def _publish(self, lineage: Lineage, topic: str, rows: set[str], missing: int) -> None:
        """Write rows by hand: all of a batch, if all are said to be missing; else of those that nobody sees
        as many as were read first: an older copy has read others in that batch since."""
        if topic not in self.cluster.topics:
            return
        wanted = [f"{lineage.name}:{uid}" for uid in lineage.tried if uid in rows]
        if missing < len(wanted):
            there = judge.seen(self.cluster, SINKS)
            wanted = [row for row in wanted if not there[row]]
        if wanted:
            self.cluster.take(topic, 0, wanted[: missing or None])

    def _strike(self, given: tuple[Any, ...] | None) -> Strike | None:
        if given is None:
            return None
        kind, at, *more = given
        strike = Strike(kind, at, *more)
        if kind == "hold":
            strike.act = self._nested
        return strike

    def _nested(self) -> None:
        """A process stands still; the world goes on until it wakes."""
        if self._depth < 2:
            self._depth, servers = self._depth + 1, self.servers
            try:
                self._until_wake()
            finally:
                self._depth -= 1
                self.turn(servers)

    def trigger(self, query: Query, strike: Strike | None, *, until_now: bool = False) -> bool:
        """One trigger; whether the query goes on."""
        self.turn(query.servers)
        run = query.run
        outcome: list[bool] = []
        if run is None or run.busy:  # who stands still in a batch is started a second time
            app = self._application(query)
            self._guarded(lambda: self._start(query, app), app, query)
            run = query.run
            if run is None:
                return False
            run.until_now = until_now
        query.used = True
        query.at_work.append(run)
        ended = self._guarded(lambda: outcome.append(run.trigger(strike)), run.app, query)
        query.at_work.pop()
        if ended != "done":
            if query.run is run:
                query.run = None
            return False
        return not run.app.ended and query.run is run

    def _application(self, query: Query) -> App:
        living = self._living if query.living else None
        app = self.ground.application(1 + self._next("app") % 2, living)
        if query.living:
            self._living = app
        return app

    def _start(self, query: Query, app: App) -> None:
        plan = Plan(query.checkpoint, dict(query.source), dict(query.sink), query.token, query.told)
        plan.ahead, plan.left_out, plan.union = query.ahead, frozenset(query.left_out), query.union
        plan.by_rows, plan.each, plan.accept = query.by_rows, query.each, query.accept
        plan.second, plan.left_out_second = query.second, frozenset(query.left_out_second)
        query.lineage.seconds |= query.second is not None
        plan.tables = {one: self.tables[one].target(query.since.get(one)) for one in query.tables}
        plan.apart, plan.apart_token = frozenset(query.apart), query.apart_token
        for one in (self.tables[name] for name in query.tables):
            one.lineages += [] if query.lineage in one.lineages else [query.lineage]
        if query.reads_files:
            plan.files = lambda: self.cluster.plain(FILES)
        if query.said is not None and age(query.checkpoint)[1] >= 0:
            plan.source["startingOffsets"] = query.said
        plan.mark, plan.source_name = query.lineage.name, query.source_name
        lineage, guarantee = query.lineage, query.sink.get("processing.guarantee", "exactly_once")
        lineage.servers = query.servers

        def read(batch: int, rows: pa.RecordBatch) -> pa.RecordBatch:
            uids = [value.decode() for value in rows.column("value").to_pylist()]
            for uid in uids:
                lineage.tried.setdefault(uid, set()).add(guarantee)
            lineage.batches.setdefault(batch, set()).update(uids)
            if plan.tables:
                planned(batch, rows_are_read=True)  # all of its places go along with it
            lineage.sinks.add(plan.sink.get("transactional.id") or stream.query_id)  # of a planned one, too
            return _rows([f"{lineage.name}:{uid}" for uid in uids])

        def planned(batch: int, rows_are_read: bool = False) -> None:
            lineage.sinks.add(plan.sink.get("transactional.id") or stream.query_id)
            lineage.queries.add(stream.query_id)
            lineage.topics |= {plan.sink["topic"], plan.sink.get("deadletter.topic", plan.sink["topic"])}
            lineage.names.add((plan.sink.get("transactional.id"), plan.sink.get("kafka.group.id")))
            if plan.each:
                lineage.sinks.add(sink_of_query(stream.query_id).id)
            elif plan.token is not None and (rows_are_read or not plan.tables):
                name = plan.sink.get("transactional.id") or "eoslog-write"
                token = (plan.apart_token if "topic" in plan.apart else None) or plan.token
                lineage.sinks.add(Token.of(f"{token}-{batch}").sink_id(name, plan.sink["topic"]))
            if not lineage.began and stream.began:  # else a copy comes back, which began where it had begun
                lineage.before = judge.in_log(self.cluster, lineage.topic, stream.began)
            lineage.began = True

        def completed(batch: int) -> None:
            lineage.noted[stream.query_id, batch] = rows = lineage.batches.pop(batch, set())
            lineage.done |= rows
            lineage.unnoted.clear()
            lineage.groups.add(plan.sink.get("kafka.group.id"))
            query.unknown = False
            query.former_sinks.discard(plan.sink.get("transactional.id") or stream.query_id)

        lineage.again |= query.left
        nameless = not query.has_group and query.source["startingOffsets"] != "committed"
        told = query.elsewhere == query.checkpoint  # that another query has the group
        if query.source["startingOffsets"] in ("earliest", "latest") and not query.reads_files:
            known = {ident for ident, _ in lineage.names if ident is not None and lineage.has_decided}
            noted = self.has_notes(query) and not told
            nameless |= query.ids[-1] not in known and not noted  # docs/limits.md says so
        notes = [query.checkpoint / "eoslog" / name for name in ("places", "starts")]
        passed = all(note.exists() for note in notes)  # a start has come to the end of its checks
        is_new = not passed or told
        if is_new and age(query.checkpoint)[0] < 0 and lineage.done and (query.unknown or nameless):
            self.accept_loss(query)  # without a checkpoint and without a name it is a new query to everybody
            query.former_sinks |= lineage.sinks if query.unknown else set()  # and ends nothing of theirs
        in_foreach = query.token is not None and not query.tables
        if in_foreach and age(query.checkpoint)[0] < 0 and query.source["startingOffsets"] == "latest":
            lineage.may_lack |= judge.in_log(self.cluster, lineage.topic)  # docs/limits.md says so
        if query.unknown:
            accept_unseen(self, query)
        if age(query.checkpoint)[0] < 0:
            self._accept_namesakes(query)
        if age(query.checkpoint)[1] < 0 and not lineage.tried:
            lineage.began = False  # a copy of before its first start, and nothing was read
        if lineage.unnoted and (planned_last := age(query.checkpoint)[1]) >= 0:
            lineage.may_double |= lineage.unnoted - query.behind(planned_last)  # docs/limits.md
        if age(query.checkpoint)[1] < 0 and query.source["startingOffsets"] == "committed":
            lineage.may_double |= lineage.unnoted  # docs/migrating.md says not to do this
            had = {ident for ident, _ in lineage.names if ident is not None}  # names that batches have had
            undecided = query.ids[-1] not in had or guarantee != "exactly_once"
            if undecided and query.source.get("kafka.group.id") in self.meddled:
                self.accept_loss(query)  # without a decision no sink tells where the last query has ended
                query.former_sinks |= lineage.sinks
        stream = self.ground.stream(plan, app, Told(planned, completed, read))
        query.run, query.error = stream, None

    def _guarded(self, do: Callable[[], Any], app: App, query: Query | None) -> str:
        """Done, or how it ended; an error that names itself ends a query loudly."""
        try:
            do()
            return "done"
        except Killed:
            app.kill()
            return "killed"
        except (Stopped, TaskFailed) as ended:
            app.ended = app.ended or "failed"
            if isinstance(ended, TaskFailed) and query is not None:
                query.error = ended
            return type(ended).__name__
        except LOUD as error:
            app.ended = app.ended or "failed"
            self.errors[type(error).__name__] += 1
            self.told.append(f"{query.name if query else 'write'}: {type(error).__name__}: {error}")
            if query is not None:
                query.error = error
                query.elsewhere = query.checkpoint if isinstance(error, StartsElsewhere) else query.elsewhere
            return "loud"

    def _next(self, name: str) -> int:
        self._numbers[name] += 1
        return self._numbers[name]


def _rows(values: Sequence[str]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([v.encode() for v in values], pa.binary())})
