"""What people and machines do around a query, beside its starts: copies that are tried out, strangers in its
group, a topic that leaves and comes back, a power cut, names that a cluster forgets, a day with Spark's own
connector."""

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eoslog.checkpoint.backups import newest_backup
from eoslog.checkpoint.carry_out import carry_out
from eoslog.checkpoint.command import moved
from eoslog.checkpoint.edit_numbers import NotEditable, NotRestorable
from eoslog.checkpoint.editing import editable, uninterrupted
from eoslog.checkpoint.rebuild import Lost, rebuilt, without_batches
from eoslog.checkpoint.restore import restore
from eoslog.checkpoint.standing import SourcePlace, places, position_of
from eoslog.checkpoint.targets import Target
from eoslog.commands.session import CommandSession
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.checkpoint_view import FRESH_SECONDS
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.errors import EoslogError
from eoslog.protocol.errors import KafkaError
from tests.histories import judge, moves
from tests.histories.commands import command, paid
from tests.histories.judge import Lineage
from tests.histories.offset_log import starting_offsets
from tests.histories.query import Query, age, identity, logged, newest_in
from tests.histories.shapes import SINKS
from tests.histories.tables import owners_act, rename_fan_out

if TYPE_CHECKING:
    from tests.histories.world import World

FORGETTING_SECONDS = 8 * 24 * 3600.0
"""Longer than a cluster keeps the offsets of an idle group, and a transactional id, by default."""


def try_out(world: "World", name: str, topic: str, triggers: int) -> None:
    """A copy of a query's checkpoint is tried out with its options, into another topic, and thrown away."""
    query = world.queries.get(name)
    if query is None or query.token is not None or not query.lineage.began or query.left:
        return
    if (
        topic in (query.sink["topic"], query.sink.get("deadletter.topic"))
        or not query.checkpoint.exists()
        or age(query.checkpoint)[0] < 0
    ):
        return
    lineage = Lineage(f"{query.lineage.name}-tried{len(world.lineages)}", query.lineage.topic, live=False)
    lineage.before, lineage.began = query.behind(age(query.checkpoint)[0]), True
    world.lineages.append(lineage)
    tried = Query(world, f"{name}-tried", dict(query.source), {**query.sink, "topic": topic}, lineage)
    tried.union, tried.by_rows = query.union, query.by_rows
    tried.told, tried.source_name, tried.ids = query.told, query.source_name, list(query.ids)
    tried.checkpoint = world.folder / uuid.uuid4().hex
    shutil.copytree(query.checkpoint, tried.checkpoint)
    for _ in range(triggers):
        if not world.trigger(tried, None):
            break
    if tried.run is not None:
        tried.run.stop()


def meddle(world: "World", group: str, ahead: bool) -> None:
    """Somebody's consumer commits to a group, at the end of its topics, or an operator resets it."""
    held = world.cluster.places_of(group)
    for topic, partition in held:
        at = world.cluster.end_of(topic, partition) if ahead else 0
        world.cluster.commit_by_hand(group, topic, partition, at)
    if held:
        world.meddled.add(group)


def leave_out(world: "World", name: str, topic: str) -> None:
    """A topic leaves subscribe for a while; the query is told that this is a loss, and goes on."""
    query = world.queries.get(name)
    if query is None or query.token is not None or not query.lineage.began:
        return
    topics = query.source["subscribe"].split(",")
    if len(topics) < 2 or topic not in topics or query.union:
        return  # Spark wants all sources of a union
    world.do_stop(name)
    query.source["subscribe"] = ",".join(one for one in topics if one != topic)
    query.source["failOnDataLoss"] = "false"
    world.do_run(name, 1)
    world.do_stop(name)
    query.source.pop("failOnDataLoss")


def take_back(world: "World", name: str) -> None:
    """Every topic that has left is named again."""
    query = world.queries.get(name)
    if query is not None and query.source["subscribe"] != query.lineage.topic:
        world.do_stop(name)
        query.source["subscribe"] = query.lineage.topic


def black_out(world: "World", name: str, batches: int) -> None:
    """A power cut of the driver's machine takes the newest batches' files that nobody has synced."""
    query = world.queries.get(name)
    if query is None or not query.checkpoint.exists():
        return
    world.do_kill(name)
    for run in query.at_work:  # those that stand still have been on that machine, too
        run.app.kill()
    query.lineage.may_double |= query.lineage.unnoted  # Spark's own connector syncs nothing
    for log in ("commits", "offsets", "sources/0"):
        newest = newest_in(query.checkpoint / log)
        for number in range(newest, max(newest - batches, -1), -1):
            path = query.checkpoint / log / str(number)
            if str(path) in world.synced:
                break
            path.unlink(missing_ok=True)
    if query.lineage.done:
        return
    if all(age(q.checkpoint)[1] < 0 for q in world.queries.values() if q.lineage is query.lineage):
        query.lineage.began = False  # its first start is forgotten, and nothing was written
    elif query.lineage.before and age(query.checkpoint)[0] >= 0:  # of a copy: what is left of it
        query.lineage.before = query.behind(age(query.checkpoint)[0])


def forget(world: "World", ids: bool, groups: bool, rows: bool = False, rests: bool = True) -> None:
    """Nobody does anything for long: the cluster forgets transactional ids, groups' offsets, or the sinks'
    rows. `rests` False: somebody deletes them."""
    for query in world.queries.values():
        world.do_stop(query.name)
    world.clock.sleep(FORGETTING_SECONDS if rests else 0)
    world.cluster.forget(ids=ids, groups=groups, rows=SINKS if rows else ())
    if rows:
        world.deleted += world.gone  # what older brokers' copies lack would have gone by now, too
        world.removed = judge.written(world.cluster, SINKS)
    for query in world.queries.values():
        world.synced |= {str(path) for path in query.checkpoint.rglob("*") if path.is_file()}  # days ago
        if groups and query.token is not None:
            query.lineage.may_double |= set(query.lineage.tried)  # who forgets offsets forgets tokens
        query.unknown |= groups  # without its checkpoint nobody knows any more where it stands
    for lineage, _ in world.writes if groups else ():
        lineage.may_double |= set(lineage.tried)  # as of every token (docs/limits.md)


def accept_unseen(world: "World", query: Query) -> None:
    """The cluster has forgotten its decisions, and all that may lie behind an older copy of its checkpoint is
    in topics that the copy does not know, or was removed where only batches of long ago had written; or the
    copy, of hours ago, knows no topic, and has completed nothing (docs/limits.md)."""
    note, lineage = NotedPlaces.read(Checkpoint.at(str(query.checkpoint))), query.lineage
    known = {place.topic for place in note.in_batches}
    older = {place.topic for place in note.older} - known
    known |= {query.topic_option, query.sink.get("deadletter.topic", "")} - older
    known |= set() if note.waiting is None else {note.waiting.topic}
    is_fresh = note.waiting is not None and time.time() - note.waiting.since_ms / 1000 < FRESH_SECONDS
    done = age(query.checkpoint)[0]
    if (known | older == {""} and not (is_fresh and done < 0)) or (done >= 0 and query.line(done) is None):
        return
    later = set(lineage.tried) - (set() if done < 0 else query.behind(done))
    there = judge.written(world.cluster, known - {""})
    there += judge.written(world.cluster, older) - world.removed
    if not any(there[f"{lineage.name}:{uid}"] for uid in later):
        lineage.may_double |= later


def empty(world: "World", topic: str) -> None:
    """Somebody deletes all records of a topic, open transactions' as well (kafka-delete-records.sh)."""
    if topic in world.cluster.topics:
        before = judge.written(world.cluster, [topic])
        world.cluster.empty(topic)
        world.unread += before - judge.written(world.cluster, [topic])
        world.deleted += judge.seen(world.cluster, [topic])  # a log that is cut later does not tell them


def compact(world: "World", topic: str, keep: int, markers: bool) -> None:
    """A topic with cleanup.policy=compact is cleaned. Later rows have the keys of what goes, also of what
    older brokers' copies lack."""
    if topic in world.cluster.topics:
        world.cluster.compact(topic, keep, markers)
        world.deleted += world.gone


def stand_in_front(world: "World", topic: str) -> None:
    """Another application's transaction holds readers of committed data back, until all is over."""
    if topic in world.cluster.topics:
        world.cluster.stand_open(topic)


def day_with_spark(world: "World", name: str) -> None:
    """Spark's own connector does a batch on the query's checkpoint, after an orderly end."""
    query = world.queries.get(name)
    if query is None or query.token is not None or query.source_name is not None or not query.lineage.began:
        return
    if query.left or query.union:
        return  # Spark's connector asks nobody whether another query has taken over
    world.do_stop(name)
    completed, planned = age(query.checkpoint)
    if completed < 0 or completed != planned or query.source["subscribe"] != query.lineage.topic:
        return
    cluster, topics = world.cluster, query.lineage.topic.split(",")
    if any(topic not in cluster.topics for topic in [*topics, query.sink["topic"]]):
        return
    before = logged(query.checkpoint, completed)
    if any(f"topic-id:{topic}:{cluster.id_of(topic)}" not in before for topic in topics):
        return
    ends = {t: {str(n): cluster.end_of(t, n) for n in range(cluster.partitions(t))} for t in topics}
    if any(at > ends[t].get(n, -1) for t in topics for n, at in before.get(t, {}).items()):
        return  # it would stop: records are lost
    number, settings = planned + 1, json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
    _put(query.checkpoint / "offsets" / str(number), f"v1\n{settings}\n{json.dumps(ends)}")
    rows = judge.in_log(cluster, query.lineage.topic, ends) - judge.in_log(
        cluster, query.lineage.topic, before
    )
    stood = judge.in_log(cluster, query.lineage.topic, before)
    query.lineage.may_lack |= stood - set(query.lineage.tried)  # in a log that was cut it sees nothing
    for uid in sorted(rows):
        query.lineage.tried.setdefault(uid, set()).add("exactly_once")
        query.lineage.done.add(uid)
    query.lineage.unnoted |= rows
    query.lineage.sparked = True
    mark, there = f"{query.lineage.name}:", judge.written(cluster, SINKS)
    query.lineage.may_double |= {uid for uid in rows if there[mark + uid]}  # on an older copy: its own
    if rows:
        cluster.take(query.sink["topic"], 0, [f"{query.lineage.name}:{uid}" for uid in sorted(rows)])
    _put(query.checkpoint / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')


def edit(world: "World", name: str, by: int) -> None:
    """`eoslog checkpoint rewind` or skip-to, by so many offsets in every partition. What that doubles or
    leaves out is accepted."""
    query = world.queries.get(name)
    if query is None or query.token is not None or query.reads_files or not query.lineage.began or query.left:
        return
    exact = query.sink.get("processing.guarantee", "exactly_once") == "exactly_once"
    if query.at_work and not exact:
        return  # nothing fences its driver, and the command sees that it lives
    world.do_stop(name)
    done = move_to(world, query, Target.parse(None, by), back=by < 0) if query.checkpoint.exists() else None
    if done is None:
        return
    stood, stands = done
    noted = NotedSink.read(Checkpoint.at(str(query.checkpoint)))
    sink = None if noted is None else noted.sink  # of a copy that has not started: that of the copied one
    for lineage in world.lineages:
        if lineage is query.lineage or sink in lineage.sinks:
            lineage.may_double |= stood - stands
            lineage.may_lack |= stands - stood


def add_topic(world: "World", name: str, topic: str, start: str = "") -> None:
    """`eoslog checkpoint add-topic`, of a topic that is new to the query, or of one that has left; then the
    query's options name it. `start`: its --start; "0": the first offsets, by number."""
    query = world.queries.get(name)
    if query is None or query.token is not None or query.reads_files or query.union or query.left:
        return
    alone = sum(other.lineage is query.lineage for other in world.queries.values()) == 1
    if not alone or query.at_work or not query.lineage.began or not query.checkpoint.exists():
        return
    had, reads = query.lineage.topic.split(","), query.source["subscribe"].split(",")
    if topic in reads or topic not in world.cluster.topics:
        return
    world.do_stop(name)
    offsets = {topic: {str(number): 0 for number in range(world.cluster.partitions(topic))}}
    given = ["--start", json.dumps(offsets) if start == "0" else start] if start else []
    there, mark = judge.written(world.cluster, SINKS), f"{query.lineage.name}:"
    said, price = paid(world, "checkpoint", "add-topic", str(query.checkpoint), topic, *given, "--watch", "0")
    if said.status != 0:
        return
    world.ways["added"] += 1
    query.lineage.topic = ",".join([*had, *({topic} - {*had})])
    names = query.lineage.topic.split(",")
    query.source["subscribe"] = ",".join(one for one in names if one in (*reads, topic))
    records = judge.in_log(world.cluster, topic) - query.lineage.before
    below, once = query.behind(age(query.checkpoint)[1]), {uid for uid in records if there[f"{mark}{uid}"]}
    query.lineage.may_lack |= (records & below) - once if "--accept-loss" in price else set()
    query.lineage.may_double |= once - below if "--accept-duplicates" in price else set()


def take_edit_back(world: "World", name: str) -> None:
    """`eoslog checkpoint undo`. A checkpoint that was written as a whole is not taken back: it has nothing
    else."""
    query = world.queries.get(name)
    if query is None or not query.checkpoint.exists() or query.at_work:
        return
    world.do_stop(name)
    checkpoint = Checkpoint.at(str(query.checkpoint))
    try:
        last = newest_backup(checkpoint)
    except EoslogError:
        return
    for servers in world.ground.sites if last is not None and last.kind != "rebuild" else ():
        world.turn(servers)
        if command(world, "checkpoint", "undo", str(query.checkpoint)).status == 0:
            world.ways["undo"] += 1
            break
    moves.lead(world, query, moves.is_of(query.checkpoint) or query.servers)


def move_to(world: "World", query: Query, target: Target, *, back: bool) -> tuple[set[str], set[str]] | None:
    """What the command does, after its user has accepted the price. Returns the records that lie before where
    the query stood, and before where it stands now; None: the command does nothing."""
    try:
        with world.ground.client() as cluster:
            session = CommandSession(cluster, as_json=False)
            found = editable(session, str(query.checkpoint))
            stood = places(position_of(found))
            kind, how = "rewind" if back else "skip-to", {"read_uncommitted": False}
            edited = moved(session, found, kind, target, how)
            if edited.before == edited.after:
                return None
            carry_out(cluster, found, edited)
    except (EoslogError, KafkaError):
        return None
    return _before(world, query, stood), _before(world, query, places(edited.end))


def _before(world: "World", query: Query, ends: Mapping[SourcePlace, int]) -> set[str]:
    below: dict[str, dict[str, int]] = {}
    for (_, topic, partition), at in ends.items():
        below.setdefault(topic, {})[str(partition)] = at
    return judge.in_log(world.cluster, query.lineage.topic, below)


def lose_checkpoint(world: "World", name: str, starting: str) -> None:
    """A query's checkpoint is lost, and it is started as it was written down, with its names."""
    query = world.queries.get(name)
    if query is None or not query.has_group or query.token or not query.lineage.done or query.reads_files:
        return
    world.do_stop(name)
    exact = query.sink.get("processing.guarantee", "exactly_once") == "exactly_once"
    if not exact and not world.cluster.places_of(
        query.sink.get("kafka.group.id", f"{query.ids[-1]}/offsets")
    ):
        return  # nobody knows where it has ended
    if not world.is_known(query):
        return  # a name that no batch has had yet (docs/limits.md)
    query.new_checkpoint(starting)


def rebuild_checkpoint(world: "World", name: str) -> None:
    """A query's checkpoint is deleted, and `eoslog checkpoint rebuild --transactional-id` writes it again. If
    the command refuses, the folder comes back."""
    query = world.queries.get(name)
    if query is not None and query.token is None and query.checkpoint.exists():
        world.do_stop(name)
        world.ways["rebuilt"] += write_again(world, query)


def restore_state(world: "World", name: str, topic: str | None = None) -> None:
    """A query's checkpoint is lost, and `eoslog checkpoint restore` writes it again, from the topic of
    state.topic. If the command refuses, the folder comes back. `topic`: the one that it has told."""
    query = world.queries.get(name)
    if query is None or "state.topic" not in query.sink or query.token is not None:
        return
    world.do_stop(name)
    folder = query.world.folder / uuid.uuid4().hex
    try:
        with world.ground.client() as cluster:
            runner = Runner(cluster, OWN_TIMEOUT_MS, decisions=ANCHOR)
            lost = Lost(Sink(str(query.ids[-1])), topic or query.topic_option, ANCHOR)
            done = restore(cluster, runner, lost, str(folder))
    except NotRestorable as error:
        former = _former_topic(world, query, str(error))
        if former is not None and topic is None:
            restore_state(world, name, former)
        elif "start this query with a new one" in str(error) and query.has_group:
            query.new_checkpoint("committed")
        return
    except (EoslogError, KafkaError):
        return
    if done is not None and done.query in query.lineage.queries:
        world.ways["restored"] += 1
        query.not_told_from_copies()
        query.checkpoint = folder


def _begun_beside_a_copy(query: Query, text: str) -> bool:
    """Begin anew where the sink's last batch has ended, if a copy has gone on under another name: the error
    says where."""
    name = re.search(r"its query has gone on with transactional\.id=(\S+) since", text)
    told = re.search(r"with a new checkpoint, and (startingOffsets=\{.*\}.*), where batch \d+", text)
    if name is None or told is None or name.group(1) in query.lineage.sinks or query.token is not None:
        return False
    query.new_checkpoint(starting_offsets(told.group(1)))
    return True


def write_again(world: "World", query: Query, topic: str | None = None) -> bool:
    """What the command does; False: it refuses, or says whose checkpoint it would write. `topic`: the one
    that it has told."""
    sink = query.ids[-1] or str(json.loads(identity(query.checkpoint) or '{"id":"-"}')["id"])
    folder = query.world.folder / uuid.uuid4().hex
    lost, at = Lost(Sink(sink), topic or query.topic_option, ANCHOR), Checkpoint.at(str(folder))
    try:
        with world.ground.client() as cluster:
            whole = without_batches(cluster, at, lost)
            if json.loads(whole["metadata"])["id"] not in query.lineage.queries:
                return False
            found = uninterrupted(CommandSession(cluster, as_json=False), at.changed(whole))
            edited = rebuilt(found)
            for file, text in whole.items():
                at.put(file, text.encode())
            carry_out(cluster, replace(found, checkpoint=at), edited)
    except NotEditable as error:
        assert "while its checkpoint was edited" in str(error) or not folder.exists(), error
        if _begun_beside_a_copy(query, str(error)):
            return True
        former = _former_topic(world, query, str(error))
        return topic is None and former is not None and write_again(world, query, former)
    except (EoslogError, KafkaError):
        return False
    query.not_told_from_copies()
    query.lineage.may_double |= query.lineage.unnoted  # of Spark's own connector no decision tells
    query.lineage.began = True  # whatever a power cut has taken
    query.checkpoint = folder
    return True


def _former_topic(world: "World", query: Query, text: str) -> str | None:
    """The topic that the option had, as an error tells; None: a copy may have been tried out there."""
    told = re.search(r"it writes to (\w+), while this one writes", text)
    copies = [one for one in world.lineages if one.name.startswith(f"{query.lineage.name}-tried")]
    return None if told is None or copies else told.group(1)


def _put(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (time.time(), time.time()))  # of the history's clock


MISHAPS: Mapping[str, Callable[..., None]] = {
    "tried": try_out,
    "meddle": meddle,
    "out": leave_out,
    "back": take_back,
    "blackout": black_out,
    "forget": forget,
    "empty": empty,
    "compact": compact,
    "stranger": stand_in_front,
    "sparkday": day_with_spark,
    "lost": lose_checkpoint,
    "edit": edit,
    "undo": take_edit_back,
    "add": add_topic,
    "rebuilt": rebuild_checkpoint,
    "restate": restore_state,
    "table": owners_act,
    "mirror": moves.mirror,
    "elsewhere": moves.look_elsewhere,
    "move": moves.move,
    "unmoved": moves.give_up,
    "wrong": moves.move_former,
    "renamefan": rename_fan_out,
}
"""The acts, by their names; each gets the world first."""
