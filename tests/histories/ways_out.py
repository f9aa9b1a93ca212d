"""What an error's text tells its reader to do, done: the way out that is named must work.

Each way is what a careful person does who has read the error and nothing else.
"""

import json
import re
import uuid
from typing import TYPE_CHECKING

from eoslog.checkpoint.carry_out import carry_out
from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.editing import editable, uninterrupted
from eoslog.checkpoint.fork import NewQuery, carry_out_fork
from eoslog.checkpoint.rebuild import rebuilt
from eoslog.checkpoint.standing import Standing, position_of
from eoslog.checkpoint.targets import Target
from eoslog.commands import output
from eoslog.commands.session import CommandSession
from eoslog.connector.checkpoint.spark_logs import source_position
from eoslog.connector.offsets.offsets import EARLIEST
from eoslog.errors import EoslogError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.histories import judge, mishaps, tables, wrong_cluster
from tests.histories.offset_log import starting_offsets
from tests.histories.query import age, logged
from tests.histories.shapes import SINKS, SOURCES

if TYPE_CHECKING:
    from tests.histories.judge import Lineage
    from tests.histories.query import Query
    from tests.histories.world import World

_LEAVES_OUT = ("rows-gone", "rows-lost", "topic-anew")
_REPEATS = ("left", "sink-changed", "sink-unknown", "taken-over")
"""Words with which rows may be missing, or be there twice. With others both may be."""

TRIES = 12
"""So many ways out, one after another, may be needed until a query goes on."""


def take(world: "World", query: "Query", error: Exception, tried: list[str]) -> str | None:
    """Do the next thing that the error names and that was not tried in vain; its name, None: nothing left."""
    text = f"{type(error).__name__}: {error}"
    if told := re.search(r"startingOffsets=(the last line of offsets/(\d+)|what it was at first)", text):
        query.copy = _line_of(query, None if told.group(2) is None else int(told.group(2)))
    elif "of the last batch whose rows are in the sink's topics" in text:
        query.copy = _line_of(query, _last_seen(world, query))
    for pattern, way in _WAYS:
        name = way.__name__.strip("_")
        left = tried.count(name) < _REPEATABLE.get(way, 1)
        if left and re.search(pattern, text) and way(world, query, text):
            return name
    return None


def _line_of(query: "Query", batch: int | None) -> str | None:
    """startingOffsets at the end of a batch; None: where the query began."""
    at_first = query.source["startingOffsets"] == "earliest"
    return "earliest" if at_first and batch is None else query.line(batch or 0)


def _last_seen(world: "World", query: "Query") -> int | None:
    """The last batch up to which all rows are visible, as somebody finds out who looks into the topic."""
    mark = f"{query.lineage.name}:"  # somebody knows their own rows
    seen = {row.removeprefix(mark) for row in judge.seen(world.cluster, SINKS) if row.startswith(mark)}
    for batch in range(age(query.checkpoint)[0], -1, -1):
        if query.line(batch) and query.behind(batch) - query.lineage.before <= seen:
            return batch
    return None


def _old_id(world: "World", query: "Query", text: str) -> bool:
    """Give the old transactional.id back."""
    for old in reversed(query.ids[:-1]):
        if old != query.ids[-1] and old in query.lineage.sinks:  # else it is another query's
            query.set_id(old)
            return True
    return False


def _name_of_the_write(world: "World", query: "Query", text: str) -> bool:
    """The transactional.id that a write of this batch has had, or none, beside its token."""
    told = re.search(
        r"Leave that write with write\.token=\S+ and (no transactional\.id|transactional\.id=\S+) ", text
    )
    if told is None or query.token is None:
        return False
    name = None if told.group(1).startswith("no ") else told.group(1).partition("=")[2]
    if name == query.ids[-1]:
        return False
    query.set_id(name)
    return True


def _topic_of_the_write(world: "World", query: "Query", text: str) -> bool:
    """The topic that a write of this batch has had."""
    told = re.search(r"Leave that write with write\.token=.* to topic (\S+) until", text)
    if told is None or query.token is None or query.sink["topic"] == told.group(1):
        return False
    query.sink["topic"] = told.group(1)
    return True


def _right_checkpoint(world: "World", query: "Query", text: str) -> bool:
    """Bring the right checkpoint back."""
    return query.bring_back()


def _rebuild(world: "World", query: "Query", text: str) -> bool:
    """eoslog checkpoint rebuild: what is lost of the last batch, or, every other time where there is another
    way, the whole checkpoint."""
    try:
        with world.ground.client() as cluster:
            found = uninterrupted(CommandSession(cluster, as_json=False), str(query.checkpoint))
            carry_out(cluster, found, rebuilt(found))
    except EoslogError as error:
        if "which files that one has read nobody else knows" in str(error):
            world.accept_loss(query)  # who begins anew with the files that are not in the topics may err
            query.new_checkpoint("earliest")
            return True
        whole = "rebuild --transactional-id" in text and query.token is None
        return (
            whole and (len(world.told) % 2 == 1 or not query.has_group) and mishaps.write_again(world, query)
        )
    return True


def _without_state(world: "World", query: "Query", text: str) -> bool:
    """A new checkpoint where the query's last batch ended; every other time, as the word does it, too."""
    if len(world.told) % 2 or not query.has_group:
        return False
    query.new_checkpoint("committed")
    return True


def _rewound(world: "World", query: "Query", text: str) -> bool:
    """eoslog checkpoint rewind, to where the error says."""
    told = re.search(r"eoslog checkpoint rewind --to '(\{.*?\})'", text)
    target = None if told is None else Target.parse(told.group(1), None)
    return target is not None and mishaps.move_to(world, query, target, back=True) is not None


def _looked(world: "World", query: "Query", text: str) -> bool:
    """The word for rows that readers have had, or for rows that they have not. What is missing of a batch
    that is there in part is published before."""
    part = re.search(r"batch (\d+) of query (\S+) is decided, as a part", text)
    batch = part or re.search(r"the log had rows of batch (\d+) of query (\S+),", text)
    if batch is None:
        return False
    seen, lineage = judge.seen(world.cluster, SINKS), query.lineage
    rows = lineage.batches.get(int(batch.group(1)), lineage.done)  # of a batch that was done once, those are
    word = "written" if any(seen[f"{lineage.name}:{uid}"] for uid in rows) else "missing"
    if word == "written":
        world.publish(query, int(batch.group(1)), batch.group(2), 0, query.means_second(text))
    told = re.search(rf"start\.accepted=(\S*batch-{word}:[\w-]+:\d+)", text)
    if told is None or query.sink.get("start.accepted") == told.group(1):
        return False
    query.sink["start.accepted"] = told.group(1)
    return True


def _copied_rows(world: "World", query: "Query", text: str) -> bool:
    """The word for rows that are this pipeline's, or for those of the one whose checkpoint was copied."""
    told = re.search(r"rows of batch (\d+) of query (\S+) are visible in", text)
    if told is None:
        return False
    word = "written" if _has_written(world, query, int(told.group(1))) else "missing"
    accepted = re.search(rf"start\.accepted=(\S*batch-{word}:[\w-]+:\d+)", text)
    if accepted is None:
        return False
    query.sink["start.accepted"] = accepted.group(1)
    return True


def _nothing_missing(world: "World", query: "Query", text: str) -> bool:
    """The word for decisions that are gone and rows that are not, after a look into the topic. What is
    missing of batches that are there in part is published before."""
    told = re.search(r"start\.accepted=(\S*decisions-gone:\d+)", text)
    if "publish those that are missing" in text:
        world.publish_rest(query)
    seen, lineage, done = judge.seen(world.cluster, SINKS), query.lineage, age(query.checkpoint)[0]
    behind = set() if done < 0 else query.behind(done)
    wanted = lineage.done | (behind - lineage.before - lineage.may_lack)
    if told is None or not all(seen[f"{lineage.name}:{uid}"] for uid in wanted):
        return False
    if any(seen[f"{lineage.name}:{uid}"] for uid in {*lineage.tried} - behind - lineage.may_double):
        return False  # rows are there that the checkpoint would write again
    query.sink["start.accepted"] = told.group(1)
    return True


def _weaker(world: "World", query: "Query", text: str) -> bool:
    """at_least_once, until it has read what it had read."""
    if query.sink.get("processing.guarantee") == "at_least_once":
        return False
    query.sink["processing.guarantee"] = "at_least_once"
    query.lineage.may_double |= set(query.lineage.tried)
    return True


def _went_here(world: "World", query: "Query", text: str) -> bool:
    """Whether the rows of the other copy of a checkpoint are in a topic of the query's, or of its past."""
    told = re.search(r"its rows went to ([\w, ]+)\.", text)
    topics = [] if told is None else told.group(1).split(", ")
    if {query.sink["topic"], *query.lineage.topics} & {*topics}:
        return True
    return any(row.startswith(f"{query.lineage.name}:") for row in judge.seen(world.cluster, topics))


def _to_fork(session: CommandSession, checkpoint: str, is_own: bool) -> Standing:
    """What is forked: the checkpoint, or the copy that the command names instead. `is_own`: what that has
    written is another pipeline's."""
    try:
        return editable(session, checkpoint, forked=True)
    except NotEditable as error:
        other = re.search(r"the copy in (\S+) has written .* fork that folder instead", str(error))
        if other is None or not is_own:
            raise
        return editable(session, other.group(1), forked=True)


def _fork(world: "World", query: "Query", text: str) -> bool:
    """eoslog checkpoint fork, and the options that it prints."""
    told = re.search(r"was decided with the checkpoint (\S+),", text)
    others = [q for q in world.queries.values() if q.lineage is not query.lineage and q.lineage.live]
    is_own = told is not None and any(told.group(1).endswith(q.checkpoint.name) for q in others)
    if not is_own and _went_here(world, query, text):
        return False  # one pipeline, which is not to write its rows twice
    name = f"{query.name}-fork-{len(query.ids)}"
    new = query.world.folder / uuid.uuid4().hex
    group = None if "kafka.group.id" not in query.sink else f"group-{name}"
    try:
        with world.ground.client() as cluster, output.shown() as watch:
            found = _to_fork(CommandSession(cluster, as_json=False), str(query.checkpoint), is_own)
            made = NewQuery.named(found, str(new), name, group)
            carry_out_fork(cluster, found, made, watch)
            query.aside.append((query.lineage, query.checkpoint))
            query.checkpoint = new
            done = position_of(found).batch_id
            if is_own:  # what was decided by then is that pipeline's
                query.lineage.before |= query.behind(done)
    except EoslogError:
        return False
    query.set_id(name)
    if group is not None:
        query.sink["kafka.group.id"] = group
    return True


def _committed(world: "World", query: "Query", text: str) -> bool:
    """A new checkpoint with startingOffsets=committed."""
    if not query.has_group or query.token is not None or query.reads_files:
        return False
    if "if these batches had one of them" in text and not world.had_group(query):
        return False
    elsewhere = query.source["startingOffsets"] != "committed" and not query.lineage.done
    if (elsewhere and "checkpoint is new" in text) or world.tells_of_another(query, text):
        return False  # that is not what is meant
    query.new_checkpoint("committed")
    return True


def _group_alone(world: "World", query: "Query", text: str) -> bool:
    """A kafka.group.id of its own, for a copy of another query's checkpoint."""
    told = re.search(r"that the sink (\S+) committed with batch", text)
    if told is None or told.group(1) in query.lineage.sinks:
        return False
    query.sink["kafka.group.id"] = f"group-{query.name}-{len(world.told)}"
    return True


def _back(world: "World", query: "Query", text: str) -> bool:
    """A new checkpoint with startingOffsets=committed, and the names that the error gives."""
    told = re.search(r"(?:kafka\.group\.id=(\S+) and )?transactional\.id=(\S+) in source and sink", text)
    if told is None or world.tells_of_another(query, text) or query.reads_files:
        return False
    query.sink.pop("kafka.group.id", None)
    if told.group(1) is not None:
        query.sink["kafka.group.id"] = told.group(1)
    query.set_id(told.group(2))
    if not query.has_group:
        return False
    query.new_checkpoint("committed")
    return True


def _exact(world: "World", query: "Query", text: str) -> bool:
    """Another new checkpoint where the sink's last batch ended, which the error tells."""
    told = re.search(r"another new checkpoint and (startingOffsets=\{.*\}.*), to go on where", text)
    last = re.search(r"batch \d+ of query ([\w-]+)", text)
    if told is None or query.token is not None or last is None or last.group(1) not in query.lineage.queries:
        return False
    query.new_checkpoint(starting_offsets(told.group(1)))
    return True


def _line(world: "World", query: "Query", text: str) -> bool:
    """A new checkpoint where the brokers' older copy stands."""
    told = re.search(r"start\.accepted=(new-checkpoint:[\w:-]*\w)", text)
    if query.copy is None or query.token is not None or query.reads_files or told is None:
        return False
    if "run by another connector" in text:
        query.lineage.may_double |= query.lineage.unnoted  # the error says so
    query.new_checkpoint(query.copy)
    query.sink["start.accepted"] = told.group(1)
    return True


def _published(world: "World", query: "Query", text: str) -> bool:
    """Publish what is missing by hand, and go on with the word."""
    told = re.search(r"batch (\d+) of query (\S+) (?:to topic \w+ )?is decided", text)
    of_token = re.search(r"the write with write\.token=\S*?(\d+) is decided", text)
    word = re.search(r"start\.accepted=(rows-lost:[\w.%-]+:\d+)", text)
    if not (told or of_token) or word is None or query.sink.get("start.accepted") == word.group(1):
        return False
    missing = re.search(r"(\d+) rows of its partitions \[[\d, ]*\] are lost", text)
    count = int(missing.group(1)) if missing else 0
    if told is not None:
        world.publish(query, int(told.group(1)), told.group(2), count, query.means_second(text))
    elif of_token is not None:
        world.publish(query, int(of_token.group(1)), "", count, query.means_second(text))
    query.sink["start.accepted"] = word.group(1)
    if "may lack some of earlier batches" in text:  # who compares and publishes them has each row once
        query.lineage.may_lack |= {u for u in query.lineage.tried if world.gone[f"{query.lineage.name}:{u}"]}
    return True


def _replay(world: "World", query: "Query", text: str) -> bool:
    """on.lost.transaction=replay, under the guarantee that the error names."""
    guarantee = query.sink.get("processing.guarantee", "exactly_once")
    if "processing.guarantee is exactly_once" in text and guarantee != "exactly_once":
        return False
    if query.sink.get("on.lost.transaction") == "replay":
        return False
    query.sink["on.lost.transaction"] = "replay"
    return True


def _no_fail(world: "World", query: "Query", text: str) -> bool:
    """failOnDataLoss=false, knowing what is gone."""
    if query.source.get("failOnDataLoss") == "false":
        return False
    query.source["failOnDataLoss"] = "false"
    return True


def _force(world: "World", query: "Query", text: str) -> bool:
    """Abort a left-over transaction by force."""
    return force(world, text)


def force(world: "World", text: str) -> bool:
    """The same for whoever was told."""
    told = re.search(r"left-over transaction (\S+) .*abort --force", text)
    return told is not None and world.cluster.terminate(told.group(1))


def _create(world: "World", query: "Query", text: str) -> bool:
    """Create the topic."""
    told = re.search(r"topic '([\w-]+)'", text)
    if told is None or told.group(1) in world.cluster.topics:
        return False
    world.cluster.create(told.group(1), (SOURCES | SINKS).get(told.group(1), 1))
    return True


def _wrote_elsewhere(query: "Query", text: str) -> bool:
    """Whether the error says that the other sink's rows went to topics which are not the query's."""
    told = re.search(r"and writes to ([\w, ]+) as it did", text)
    return told is not None and query.sink["topic"] not in told.group(1).split(", ")


def _option(world: "World", query: "Query", text: str) -> bool:
    """The option that the error names."""
    told = re.findall(r"(?:start\.accepted|cluster\.moved\.to)=[\w.,:-]+", text)
    if not told:
        return False
    name, _, value = told[-1].rstrip(".,:").partition("=")
    kind, _, of = value.split(",")[-1].partition(":")
    if kind == "offsets-of" and of.partition(":")[0] not in query.lineage.sinks:
        return False  # they are another query's
    if query.sink.get(name) == value:
        return False
    query.sink[name] = value
    if name == "cluster.moved.to":
        query.source[name] = value
    elif kind not in (*_REPEATS, "cluster"):
        query.lineage.may_lack |= set(query.lineage.tried)
    if kind not in (*_LEAVES_OUT, "cluster") and name != "cluster.moved.to":
        query.lineage.may_double |= set(query.lineage.tried)
    if "topic-anew" in value:  # it has not read so far, if no other word is left for it
        below = logged(query.checkpoint, age(query.checkpoint)[1])
        query.lineage.may_lack |= judge.in_log(world.cluster, query.lineage.topic, below)
    if "Spark's files there lead to batch" in text:  # it may begin at the latest offsets once more
        query.lineage.may_lack |= judge.in_log(world.cluster, query.lineage.topic)
    missing = "would be missing in this one's topic" in text
    if kind == "copied" or missing or (kind == "offsets-of" and _wrote_elsewhere(query, text)):
        query.lineage.may_lack |= {uid for line in _copies(world, query) for uid in line.tried}
    return True


def _copies(world: "World", query: "Query") -> "list[Lineage]":
    """What copies of the query have written, under names of their own here."""
    return [line for line in world.lineages if line.name.startswith(f"{query.lineage.name}-tried")]


def _checkpoint_option(world: "World", query: "Query", text: str) -> bool:
    """checkpointLocation as an option."""
    done, query.told = not query.told, True
    return done


def _another_token(world: "World", query: "Query", text: str) -> bool:
    """A token that is not taken; where the source has lost rows of the same write, the write is left out."""
    if query.token is None:
        return False
    told = re.search(r"write\.token=\S*?(\d+) has written .*leave this write out, once", text)
    if told is None or not _has_written(world, query, int(told.group(1)), text):
        query.token = f"{query.token}-{query.name}"
        return True
    return query.bring_back() or _leave_once(world, query, int(told.group(1)), text)


def _given_a_token(world: "World", query: "Query", text: str) -> bool:
    """A token for a df.write of foreachBatch that had none: what its next batches have written comes twice.
    The right checkpoint is brought back, if there is one."""
    if query.bring_back():
        return True
    if not query.each:
        return False
    done = age(query.checkpoint)[0]
    before = query.behind(done) if done >= 0 else set()
    query.lineage.may_double |= _visible(world, query, text) - before
    query.each, query.token = False, f"{query.name}-given"
    return True


def _leave_this_out(world: "World", query: "Query", text: str) -> bool:
    """A df.write of foreachBatch whose first rows are visible is left out, unless there is a newer
    checkpoint to bring back."""
    if query.bring_back():
        return True
    told = re.search(r"batch (\d+) of query \S+ a df\.write of foreachBatch without", text)
    return told is not None and _leave_once(world, query, int(told.group(1)), text)


def _leave_once(world: "World", query: "Query", batch: int, text: str) -> bool:
    """Leave a write out whose rows are visible. Those that came only now are not written, and those that came
    only then are written again, as the error says."""
    if not _leave_out_of(query, text, batch):
        return False
    rows, visible = _rows_of(query, batch), _visible(world, query, text)
    query.lineage.may_lack |= rows - visible
    query.lineage.may_double |= rows & visible
    return True


def _leave_out_of(query: "Query", text: str, batch: int) -> bool:
    """Leave a write out of its batch: that which the error means; whether that was not done yet."""
    left_out = query.left_out_second if query.means_second(text) else query.left_out
    done = batch in left_out
    left_out.add(batch)
    return not done


def _has_written(world: "World", query: "Query", batch: int, text: str = "") -> bool:
    """Whether rows of the pipeline's batch are visible, as somebody finds out who looks into the topic."""
    return bool(_rows_of(query, batch) & _visible(world, query, text))


def _rows_of(query: "Query", batch: int) -> set[str]:
    """All rows that the pipeline has ever read in the batch."""
    noted = (rows for (_, number), rows in query.lineage.noted.items() if number == batch)
    return query.lineage.batches.get(batch, set()).union(*noted)


def _visible(world: "World", query: "Query", text: str) -> set[str]:
    """Which of the pipeline's rows are visible where the write goes that the error means."""
    name = f"{query.lineage.name}+" if query.means_second(text) else query.lineage.name
    seen = judge.seen(world.cluster, SINKS)
    return {uid for uid in query.lineage.tried if seen[f"{name}:{uid}"]}


def _token_looked(world: "World", query: "Query", text: str) -> bool:
    """Leave a write out whose rows are in the topic, and publish what is missing of it; else the word. The
    right checkpoint is brought back, if there is one."""
    if "bring the right checkpoint back" in text and query.bring_back():
        return True
    told = re.search(r"whether write\.token=\S*?(\d+) was written is not known", text)
    word = re.search(r"start\.accepted=(\S*decisions-gone:\S+)", text)
    if told is None or word is None:
        return False
    if _has_written(world, query, int(told.group(1)), text):
        _leave_out_of(query, text, int(told.group(1)))
        world.publish(query, int(told.group(1)), "", 0, query.means_second(text))
    else:
        query.sink["start.accepted"] = word.group(1)
    return True


def _name_again(world: "World", query: "Query", text: str) -> bool:
    """The former topics, until the batch is done."""
    named = query.source["subscribe"] != query.lineage.topic
    query.source["subscribe"] = query.lineage.topic
    return named


def _leave_out(world: "World", query: "Query", text: str) -> bool:
    """Partitions that are gone, out of startingOffsets."""
    told = re.search(r"startingOffsets names ([\w, -]+), which is not among the partitions read", text)
    starting = query.source["startingOffsets"]
    if told is None or not starting.startswith("{"):
        return False
    given = json.loads(starting)
    for place in told.group(1).split(", "):
        topic, _, partition = place.rpartition("-")
        given[topic].pop(partition)
    query.source["startingOffsets"] = json.dumps(
        {key: parts for key, parts in given.items() if parts or ":" in key}
    )
    return True


def _same_topics(world: "World", query: "Query", text: str) -> bool:
    """Topics that startingOffsets does not name, from their beginning; without those that are not read."""
    starting, topics = query.source["startingOffsets"], query.source["subscribe"].split(",")
    if not starting.startswith("{"):
        return False
    given = {key: ends for key, ends in json.loads(starting).items() if ":" in key or key in topics}
    for topic in (one for one in topics if one not in given):
        given[topic] = {str(n): EARLIEST for n in range(world.cluster.partitions(topic))}
    query.source["startingOffsets"] = json.dumps(given)
    return True


def _earliest(world: "World", query: "Query", text: str) -> bool:
    """startingOffsets that the error names: where it stood, or where the brokers' older copy stands. Before
    that, a batch of the former checkpoint that is not done is finished there, where it goes on then."""
    if "start that one once" in text and query.former is not None:
        (former, starting), query.former = query.former, None
        is_used = any(one.run and one.checkpoint == former for one in world.queries.values())
        completed, planned = age(former)
        if completed < planned and not is_used:
            query.checkpoint, query.source["startingOffsets"] = former, starting
            return True
    if query.ids[-1] not in query.lineage.sinks:  # of this name nothing is known: nobody compares
        query.lineage.may_lack |= {u for u in query.lineage.tried if world.gone[f"{query.lineage.name}:{u}"]}
    # It says to start that one once, to finish its last batch; of which a power cut may have taken all files.
    query.lineage.may_double |= set[str]().union(*query.lineage.batches.values())
    stood = query.stood()
    if stood is not None and "start that one once" in text:
        there = judge.in_log(world.cluster, query.lineage.topic, json.loads(stood))
        query.lineage.may_double |= set(query.lineage.tried) - there
    query.new_checkpoint(query.copy or stood or "earliest")
    return True


def _source_as_before(world: "World", query: "Query", text: str) -> bool:
    """The former source until the batch is done."""
    told = re.search(r"runs again without (\w+)", text)
    query.source_name = told.group(1) if told else query.source_name
    return told is not None


def _source_where_the_former_ended(world: "World", query: "Query", text: str) -> bool:
    """Without the planned batch, the source at the line of the former one; under another name, if told."""
    told = re.search(r"batch (\d+) is the first (?:with the source|in which the source)", text)
    if told is None:
        return False
    number = int(told.group(1))
    given = re.search(r"with startingOffsets=(\{.*\}\})", text)
    query.said = query.line(number - 1) if given is None else given.group(1)
    for name in (str(number), f".{number}.crc"):
        (query.checkpoint / "offsets" / name).unlink(missing_ok=True)
    if "another name" in text:
        query.source_name = f"source{len(world.told)}"
    return True


def _own_group(world: "World", query: "Query", text: str) -> bool:
    """Another new checkpoint at startingOffsets of its own, and a kafka.group.id of its own."""
    told = re.search(r"that the sink (\S+) has committed", text)
    if told is not None and told.group(1) in query.lineage.sinks:
        return False  # it goes on with what that one has begun
    starting = query.source["startingOffsets"]
    if starting == "committed":
        again = query.lineage.done <= query.lineage.may_double  # it has accepted that these may come twice
        known = query.copy or query.stood() or ("earliest" if again else None)
        if known is None:
            return False
        starting = known
    query.sink["kafka.group.id"] = f"group-{query.name}-{len(world.told)}"
    query.new_checkpoint(starting)
    query.lineage.began = bool(query.lineage.done)
    return True


def _own_id(world: "World", query: "Query", text: str) -> bool:
    """A transactional.id of its own."""
    query.set_id(f"{query.name}-own-{len(query.ids)}")
    return True


def _own_names(world: "World", query: "Query", text: str) -> bool:
    """A transactional.id and a kafka.group.id of its own."""
    wrote = re.search(r"has written to topic ([\w-]+):.*If the topic was changed", text)
    mark = f"{query.lineage.name}:"
    if wrote and any(row.startswith(mark) for row in judge.seen(world.cluster, [wrote.group(1)])):
        return False  # it is no copy, and its topic was changed
    query.sink["kafka.group.id"] = f"group-{query.name}-{len(world.told)}"
    if "rows may be there twice" in text:
        world.accept_loss(query)
    if not query.lineage.tried and query.ids[-1] is not None:  # it has had nothing to do with that name
        query.lineage.sinks.discard(query.ids[-1])
    return _own_id(world, query, text)


def _named_id(world: "World", query: "Query", text: str) -> bool:
    """The transactional.id that the error names, in source and sink."""
    told = re.search(r"transactional\.id=([\w-]+(?:\.[\w-]+)*)", text)
    if told is None or query.ids[-1] == told.group(1) or told.group(1) not in query.lineage.sinks:
        return False  # it is another query's
    if _wrote_elsewhere(query, text):
        return False  # it is a copy of the query
    there = judge.seen(world.cluster, [query.sink["topic"]])
    query.lineage.may_lack |= {
        uid for line in _copies(world, query) for uid in line.tried if there[f"{line.name}:{uid}"]
    }  # it goes on behind what the copy has written there
    query.set_id(told.group(1))
    if query.source["startingOffsets"] == "committed" and not query.lineage.began:
        return True
    if "new checkpoint" in text and query.source["startingOffsets"] == "committed" and query.has_group:
        query.new_checkpoint("committed")
    return True


def _again(world: "World", query: "Query", text: str) -> bool:
    """Start the query again."""
    return True


def _later(world: "World", query: "Query", text: str) -> bool:
    """The same after a while."""
    world.clock.sleep(1000)
    return True


def _marker(world: "World", query: "Query", text: str) -> bool:
    """The markers that an operator finds out, or the abort of what `__transaction_state` does not have."""
    return world.cluster.end_held()


def set_back(world: "World", query: "Query", text: str) -> bool:
    """eoslog checkpoint rewind to where the batch before ended, and the word. Who takes this way, and not the
    word alone, wants the rows again."""
    told = re.search(r"batch (\d+) is decided, and the cluster has lost rows", text)
    word = re.search(r"start\.accepted=(\S*rows-gone:\d+)", text)
    line = None if told is None else query.line(int(told.group(1)) - 1)
    if line is None or word is None:
        return False
    target = Target(offsets=source_position(line).offsets)
    query.sink["start.accepted"] = word.group(1)
    return mishaps.move_to(world, query, target, back=True) is not None


def _operator_marks(world: "World", query: "Query", text: str) -> bool:
    """The operator writes the markers that the error asks for, where and for whom it says."""
    commit = "write COMMIT markers" in text
    held = re.findall(r"(\S+)-(\d+) by \S+ \((\d+)\.(\d+)\)", text)
    marked = [
        world.cluster.mark((topic, int(number)), ProducerIdentity(int(who), int(epoch)), commit)
        for topic, number, who, epoch in held
    ]
    return any(marked)


def _named_as_before(world: "World", query: "Query", text: str) -> bool:
    """Another new checkpoint, with all topics that the last query had."""
    query.source["subscribe"] = query.lineage.topic
    query.new_checkpoint(query.source["startingOffsets"])
    return True


_WAYS = (
    (r"WrongCluster: ", wrong_cluster.to_the_other_cluster),
    (r"give the fan-out a new name", tables.new_name),
    (r"Give the fan-out that name again", tables.old_name),
    (r"bring back the newest checkpoint", _right_checkpoint),
    (r"RESTORE it to version|Make \d+ or one that comes|Bring (it|back the table)", tables.table_back),
    (r'fanout .*\bsince="\d', tables.since),
    (r"rebuild CHECKPOINT --fanout", tables.from_the_table),
    (r'accept_other_rows="\d', tables.accept),
    (r"have the cluster's operator (write COMMIT markers|abort them on these)", _operator_marks),
    (r"have the cluster's operator look up in __transaction_state", _marker),
    (r"brokers have lost decisions\. Nothing was written\. .*Look for this write's rows", _token_looked),
    (r"leave this write out, once. Rows that came only now", _leave_this_out),
    (r"the cluster has lost decisions", _nothing_missing),
    (r"run the query with at_least_once until", _weaker),
    (r"readers may have had them|as a part of its rows is visible", _looked),
    (r"with its former sources", _source_as_before),
    (r"is the first (with|in which) the source", _source_where_the_former_ended),
    (r"Give this one a kafka\.group\.id of its own", _group_alone),
    (r"to go back from the other one", _back),
    (r"(give it|with) transactional\.id=\w", _named_id),
    (r"Leave that write with write\.token=.* to topic ", _topic_of_the_write),
    (r"Leave that write with write\.token=", _name_of_the_write),
    (r"Give the old transactional.id back|old transactional\.id", _old_id),
    (r"if these rows are to be written, give the write a token", _given_a_token),
    (r"[Bb]ring the right checkpoint|right checkpoint back", _right_checkpoint),
    (r"eoslog checkpoint fork", _fork),
    (r"this checkpoint is a copy, or was moved", _copied_rows),
    (r"start the other one", _right_checkpoint),
    (r"with a new checkpoint and without state", _without_state),
    (r"eoslog checkpoint rebuild", _rebuild),
    (r"eoslog checkpoint rewind --to", _rewound),
    (r"name these topics as before", _named_as_before),
    (r"must name the same topics; they differ", _same_topics),
    (r"startingOffsets=committed", _committed),
    (r"to go on where that batch ended", _exact),
    (r"if these batches had one of them, else", _line),
    (r"again with on\.lost\.transaction=replay", _replay),
    (r"[Pp]ublish\b.*missing", _published),
    (r"Name them until that batch is done", _name_again),
    (r"failOnDataLoss", _no_fail),
    (r"give the option checkpointLocation|checkpointLocation is not among", _checkpoint_option),
    (r"create the topic", _create),
    (r"partitions read: leave it out", _leave_out),
    (r"left-over transaction.*abort --force", _force),
    (r"with a kafka\.group\.id of its own", _own_group),
    (r"(another|other|new|own) (write\.)?token", _another_token),
    (r"give startingOffsets as earliest", _earliest),
    (r"has no partition [\d, ]+, but .*: check assign or the offsets given", _earliest),
    (r"[Ss]tart the query again|another driver owns|safe to start|start it again", _again),
    (r"transactional\.id and (a )?kafka\.group\.id of its own", _own_names),
    (r"start\.accepted=\w|cluster\.moved\.to=\w", _option),
    (r"transactional\.id of its own|give each its own", _own_id),
    (r".", _later),
)
_REPEATABLE = {
    _again: 2,
    _earliest: 2,
    _source_as_before: 3,
    _source_where_the_former_ended: 3,
    _force: TRIES,
    _option: TRIES,
    _looked: TRIES,
    _operator_marks: TRIES,
    _token_looked: TRIES,
    _create: 2,
    _another_token: 4,
    _leave_this_out: 4,
    tables.new_name: 4,
    tables.old_name: 4,
    tables.table_back: 4,
    tables.since: 4,
}  # one transaction, or word, at a time
