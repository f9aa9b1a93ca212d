"""Exactly the rights that a query needs on its cluster, from its options alone. Pure.

In Kafka Read and Write include Describe, so Describe is listed only if neither is needed. Tests on a broker
that denies everything without a rule check that each right is needed (tests/docs/test_rights.py).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from eoslog.client.admin.transaction_states import STATE_TOPIC
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import WRITER, sinks_of_tokens
from eoslog.connector.offsets import offsets
from eoslog.connector.options.sink_options import Guarantee, SinkOptions
from eoslog.connector.options.source_options import ShadowOptions, SourceOptions
from eoslog.errors import OptionError
from eoslog.protocol.names_by_sink import ANCHOR

TOPIC, GROUP, ID = "Topic", "Group", "TransactionalId"
READ, WRITE, DESCRIBE = "Read", "Write", "Describe"
DESCRIBE_CONFIGS, TWO_PHASE_COMMIT = "DescribeConfigs", "TwoPhaseCommit"

EVERY = "*"
_QUANTIFIERS = "*?{"
_SPECIAL = r"\.[](){}^$|?*+"


class Right(NamedTuple):
    """One operation on a resource, by Kafka's names. `prefixed`: on all whose name begins with `name`.
    `optional`: the query also runs without it, and asks for it."""

    operation: str
    resource: str
    name: str
    prefixed: bool
    why: str
    optional: bool = False


class Needed(NamedTuple):
    """The rights of a query, and notes about rights that its options do not show."""

    rights: tuple[Right, ...]
    notes: tuple[str, ...]


def needed(source: SourceOptions | None, sink: SinkOptions | None, *, stream: bool) -> Needed:
    """The rights of a query with this source, this sink, or both. Raises OptionError if names are not known
    before it runs."""
    rights: list[Right] = []
    notes: list[str] = []
    if source is not None:
        rights += _of_source(source)
        notes += _notes_of_source(source)
    if sink is not None:
        rights += _of_sink(sink, stream)
        notes += _notes_of_sink(sink, source)
    return Needed(tuple(_each_once(rights)), tuple(notes))


def under(rights: Iterable[Right], prefix: str, *, topics: bool) -> tuple[Right, ...]:
    """The rights of all queries whose names begin with `prefix`: on transactional ids and groups that do,
    they are prefixed ones. On topics, only with `topics`: a topic that begins so may be another's."""
    wide = [
        right._replace(name=prefix, prefixed=True)
        if right.name.startswith(prefix) and (topics or right.resource != TOPIC)
        else right
        for right in rights
    ]
    return tuple(_each_once(wide))


def _each_once(rights: list[Right]) -> Iterator[Right]:
    """Leave out rights that are there twice, or are included in another."""
    seen: set[tuple[str, str, str, bool]] = set()
    everything = {right[:4] for right in rights if not right.optional}
    for right in rights:
        comes_with = right.operation == DESCRIBE and any(
            (other, *right[1:4]) in everything for other in (READ, WRITE)
        )
        if right[:4] not in seen and not comes_with and not (right.optional and right[:4] in everything):
            seen.add(right[:4])
            yield right


def _of_source(options: SourceOptions) -> Iterator[Right]:
    topics = options.subscribe or tuple(dict.fromkeys(topic for topic, _ in options.assign or ()))
    for topic in topics:
        yield Right(READ, TOPIC, topic, False, "the source")
    if options.pattern is not None:
        yield _of_pattern(options.pattern)
    if options.shadow is not None:
        yield from _of_shadow(options.shadow, options.decision_topic)
    for name in options.whole_batches or ():
        yield from _of_one_who_is_read(Sink(name), options.decision_topic, "read.whole.batches")
    if options.as_of_batch is not None or options.as_of_time is not None:
        yield Right(READ, TOPIC, ANCHOR, False, "as.of.batch, as.of.time: former decisions")
        for topic in topics:
            yield Right(DESCRIBE_CONFIGS, TOPIC, topic, True, "the same: whether compaction takes rows")
    if options.starting != offsets.COMMITTED or options.group_id is None:
        return
    yield Right(DESCRIBE, GROUP, options.group_id, False, "startingOffsets=committed")
    if options.taken_over is not None:
        yield from _of_one_who_stops(
            Sink(options.taken_over),
            options.decision_topic,
            "the sink that this query replaces is stopped first",
        )


def _of_shadow(shadow: ShadowOptions, decisions: str) -> Iterator[Right]:
    yield from _of_one_who_is_read(Sink(shadow.sink), decisions, "shadow.of")
    yield Right(DESCRIBE, GROUP, shadow.group, False, "kafka.group.id: how far that query has read")
    yield Right(DESCRIBE, TOPIC, shadow.topic, False, "shadow.topic: where that query's rows end")
    yield Right(DESCRIBE, TOPIC, shadow.into, False, "shadow.into: where this query's rows end")


def _of_one_who_is_read(sink: Sink, decisions: str, option: str) -> Iterator[Right]:
    yield Right(DESCRIBE, GROUP, sink.group, False, f"{option}: what that query has decided")
    yield Right(DESCRIBE, TOPIC, decisions, False, "the same: it is kept as offsets of its partitions")


def _of_pattern(pattern: str) -> Right:
    why = f"subscribePattern={pattern}"
    start, whole = _literal_start(pattern)
    if whole:
        return Right(READ, TOPIC, start, False, why)
    return Right(READ, TOPIC, start, True, why) if start else Right(READ, TOPIC, EVERY, False, why)


def _literal_start(pattern: str) -> tuple[str, bool]:
    """The text with which all matches of a regular expression begin, and whether it is the only match."""
    if "|" in pattern:
        return "", False
    start, at = "", 0
    while at < len(pattern):
        step = 2 if pattern[at] == "\\" else 1
        sign = pattern[at : at + step]
        letter = sign[-1]
        is_plain = letter in _SPECIAL + "-_" if step == 2 else letter not in _SPECIAL
        if not is_plain or pattern[at + step : at + step + 1] in tuple(_QUANTIFIERS):
            return start, False
        start, at = start + letter, at + step
    return start, True


def _of_one_who_stops(sink: Sink, decisions: str, why: str) -> Iterator[Right]:
    """The rights to fence a sink and to read what it has decided. `_also_of`: those to carry that out."""
    yield Right(WRITE, ID, sink.coordinator, False, why)
    yield Right(DESCRIBE, GROUP, sink.group, False, "what that sink has decided")
    yield Right(DESCRIBE, TOPIC, decisions, False, "the same: it is kept as offsets of its partitions")


def _of_sink(options: SinkOptions, stream: bool) -> Iterator[Right]:
    if options.topic is not None:
        yield Right(WRITE, TOPIC, options.topic, False, "the rows")
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        if options.transactional_id is not None:
            why = "an earlier query of this transactional.id is stopped"
            yield from _of_one_who_stops(Sink(options.transactional_id), options.decision_topic, why)
    elif options.write_token is not None:
        yield from _of_tokens(options)
    else:
        yield from _of_transactions(options, stream)
    if options.group_id is not None:
        yield Right(READ, GROUP, options.group_id, False, f"kafka.group.id={options.group_id}")
    elif stream and options.transactional_id is not None:
        group = options.group_of(options.transactional_id)
        if group is not None:
            why = "the source offsets, unless commit.source.offsets=false"
            yield Right(READ, GROUP, group, False, why)
        elif options.guarantee is Guarantee.AT_LEAST_ONCE:
            why = "how far an exactly_once query of this transactional.id has read, for a new checkpoint"
            yield Right(DESCRIBE, GROUP, Sink(options.transactional_id).offsets_group, False, why)
    if options.deadletter_topic is not None:
        why = f"deadletter.topic={options.deadletter_topic}"
        yield Right(WRITE, TOPIC, options.deadletter_topic, False, why)
        if options.topic is not None:
            why = "deadletter.topic: how large a row may be"
            yield Right(DESCRIBE_CONFIGS, TOPIC, options.topic, False, why)
    if options.state is not None:
        yield from _of_state(options.state.topic)


def _of_state(topic: str) -> Iterator[Right]:
    yield Right(WRITE, TOPIC, topic, False, "state.topic: the state")
    yield Right(READ, TOPIC, topic, False, "state.topic: what is saved already, and to restore it")
    yield Right(DESCRIBE_CONFIGS, TOPIC, topic, False, "state.topic: whether it keeps what is saved")


def _of_transactions(options: SinkOptions, stream: bool) -> Iterator[Right]:
    if options.transactional_id is None:
        raise OptionError(
            "transactional.id is missing: without it the names of a sink's transactions are new with every "
            "query, and no right on them can be given before it runs; give transactional.id"
        )
    sink = Sink(options.transactional_id)
    yield Right(WRITE, ID, sink.coordinator, False, "the sink's own transaction, which decides")
    why = "the tasks' transactions: to write, to end, and to find what a dead driver left open"
    yield Right(WRITE, ID, sink.prefix, True, why)
    yield Right(READ, GROUP, sink.group, False, "the decision is kept as offsets of this group")
    yield _of_decisions(options.decision_topic)
    yield from _of_two_phase(options.two_phase, sink.prefix)
    yield from _of_readers(options)
    yield Right(READ, GROUP, sink.prefix, True, "a batch of very many tasks or topics", True)
    if stream:
        group = sinks_of_tokens(WRITER)[0]
        why = "a change from foreachBatch to this sink, under the same checkpoint, is noticed"
        yield Right(READ, GROUP, group, True, why, True)
    if options.guarantee is Guarantee.AT_MOST_ONCE and stream:
        why = "processing.guarantee=at_most_once: the batch that was begun last"
        yield Right(READ, GROUP, sink.attempts_group, False, why)


def _of_tokens(options: SinkOptions) -> Iterator[Right]:
    now, before = sinks_of_tokens(options.transactional_id or WRITER)
    yield Right(WRITE, ID, now, True, "the transactions of all tokens")
    yield Right(READ, GROUP, now, True, "their decisions, and what is noted when they are done")
    why = "whether an earlier version has written the token"
    yield Right(DESCRIBE, ID, before, True, why)
    yield Right(DESCRIBE, GROUP, before, True, why)
    yield _of_decisions(options.decision_topic)
    yield from _of_two_phase(options.two_phase, now)
    yield from _of_readers(options)


def _of_two_phase(policy: TwoPhase, names: str) -> Iterator[Right]:
    """Those to seal transactions, and to list them safely."""
    if policy is TwoPhase.REQUIRE:
        yield Right(TWO_PHASE_COMMIT, ID, names, True, "two.phase.commit=require")
    elif policy is TwoPhase.AUTO:
        why = "no outage is too long, if the cluster offers it (two.phase.commit=auto)"
        yield Right(TWO_PHASE_COMMIT, ID, names, True, why, True)
    why = "on several brokers: whether a coordinator moves while transactions are listed"
    yield Right(DESCRIBE, TOPIC, STATE_TOPIC, False, why, True)


def _of_readers(options: SinkOptions) -> Iterator[Right]:
    why = "after a kill, or the loss of a broker: whether all that is decided can be read"
    for topic in (options.topic, options.deadletter_topic):
        if topic is not None:
            yield Right(READ, TOPIC, topic, False, why, True)


def _of_decisions(topic: str) -> Right:
    why = "those offsets are committed for its partitions; it is never read"
    return Right(READ, TOPIC, topic, False, why)


def _notes_of_source(options: SourceOptions) -> Iterator[str]:
    if options.pattern is not None:
        yield ("subscribePattern finds only topics that the user may see: Read on each of them does as well")


def _notes_of_sink(options: SinkOptions, source: SourceOptions | None) -> Iterator[str]:
    if options.topic is None:
        yield "each row names its topic: give Write on all of them" + (
            "" if options.deadletter_topic is None else ", and DescribeConfigs for deadletter.topic"
        )
    if options.write_token is not None and options.transactional_id is not None:
        yield f"in foreachBatch: Read on groups {sinks_of_tokens(WRITER)[0]}, prefixed, as well"
    if options.group_id is not None and source is None:
        yield "kafka.group.id: committing offsets also needs Read on the topics of the source"
    if options.guarantee is Guarantee.AT_LEAST_ONCE and options.transactional_id is not None:
        yield _also_of(Sink(options.transactional_id), options.decision_topic)


def _also_of(sink: Sink, decisions: str) -> str:
    return (
        f"if an exactly_once query has died under transactional.id={sink.id}, to carry out what it left "
        f"takes Write on transactional ids {sink.prefix}, prefixed, Read on group {sink.group} and "
        f"on {decisions}"
    )
