"""Keeps a shadow from writing anything that belongs to the query that it shadows, until it has taken that
query's place, and tells where it stands beside that query's decisions. Pure."""

from collections.abc import Iterable, Sequence

from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.offsets.offsets import Offsets, ShadowCut
from eoslog.errors import OptionError, ShadowLost

ANEW = "with a new checkpoint and a new transactional.id"
"""How a shadow begins anew. Under its former name it would not be the query that has written before."""


def ends_at(cut: ShadowCut, ends: Offsets, decision: Decision, committed: Offsets) -> bool:
    """Whether a shadow's batch ends at this decision. Its number alone does not tell: they are counted anew
    once the cluster has forgotten them. `ends`: of the batch. `committed`: the offsets of the other query's
    group with the decision, which tell it where an earlier version has made the cut."""
    if cut.sequence != decision.sequence:
        return False
    if cut.decided is not None:
        return cut.decided == decided_in(decision)
    return bool(committed) and all(ends.get(place, at) == at for place, at in committed.items())


def is_later(cut: ShadowCut, decision: Decision) -> bool:
    """Whether this decision was made after that of the cut, and no decision was forgotten in between: then
    each batch since has one, and the sink knows the query."""
    made = decision.sequence - cut.sequence
    if cut.decided is None:
        return made > 0
    query, number, _ = cut.decided
    last = decision.last_of(query)
    return last is not None and made >= max(1, last.batch_id - number)


def decided_in(decision: Decision) -> tuple[str, int, str]:
    """The last batch of a query that was decided, as a cut has it."""
    query, number, digest = (decision.of_query or decision).batch
    return query, number, digest


def forgotten(sink: str, decision: Decision) -> str:
    """What to say where a shadow stands at none of the decisions that the cluster knows."""
    return (
        f"the query with transactional.id={sink} has decided {decision.batch} as no. {decision.sequence}: "
        "that query was set back, or has run without these decisions (at_least_once, another "
        "transactional.id), or the cluster has forgotten the decision at which its shadow stands, as after a "
        "week without use. Nothing was changed"
    )


def check_not_its_own(cuts: Sequence[ShadowCut], query: str, noted: str | None) -> None:
    """Raise ShadowLost if a batch of this query, as a shadow, ends where the query itself has decided: it has
    taken over and gone on in the other one's names, and its checkpoint is older. `noted`: the sink that the
    checkpoint was given to."""
    for cut in cuts:
        if cut.decided is not None and cut.decided[0] == query and noted != cut.sink and not cut.over:
            topics = ", ".join(sorted({topic for topic, _ in cut.written}))
            raise ShadowLost(
                "shadow.of: bring the query's newest checkpoint back: "
                f"{of_before(cut.sink, topics, Batch(*cut.decided))}"
            )


def of_before(sink: str, topic: str, decided: Batch) -> str:
    """What to say of a shadow's checkpoint that is older than what the shadow has decided in the place of the
    other query, which writes to `topic`."""
    return (
        f"this shadow has taken the place of the query with transactional.id={sink}, and has decided "
        f"{decided} there: this checkpoint is a copy of before. Nothing was written. If its newest "
        f"checkpoint is lost, start the query as transactional.id={sink}, without shadow.of, "
        "with one that is written anew in an empty folder: without state by eoslog checkpoint rebuild FOLDER "
        f"--transactional-id {sink} --topic {topic}, with state.topic by eoslog checkpoint restore"
    )


def is_before(cut: ShadowCut, taken: ShadowCut) -> bool:
    """Whether a shadow stood at `cut` before it took over at `taken`: or at it. Another one that follows its
    sink, even into the same topic, has begun later."""
    pairs = ((cut.written, taken.written), (cut.own, taken.own))
    same = cut.sink == taken.sink and cut.sequence <= taken.sequence
    return same and all(at <= later.get(place, -1) for ends, later in pairs for place, at in ends.items())


def place_of(cuts: Sequence[ShadowCut], batch_id: int, noted: str | None, since: int) -> ShadowCut | None:
    """Where this batch's query took the place of the one that it has shadowed, if it is to write in that
    one's names. None: it is not. `noted`, `since`: the checkpoint's sink, and its first batch.

    It took over with batch `since`. A later batch is one of those only if its source knew that."""
    taken = [cut for cut in cuts if cut.sink == noted and (cut.over or batch_id == since)]
    return taken[0] if len(cuts) == len(taken) == 1 else None


def check_apart(
    cuts: Sequence[ShadowCut],
    sink: str | None,
    group: str | None,
    topic: str | None,
    noted: str | None = None,
) -> None:
    """Raise OptionError if this writer of a shadow has the transactional.id, the kafka.group.id or a topic of
    the query that is shadowed. `topic` None: each row names its own. `noted`: the sink that the checkpoint
    was given to. If it is that query's, the shadow has taken over: then it must not leave that sink again,
    and what a start with shadow.of has planned by mistake is written to where it belongs."""
    if len(cuts) > 1:
        raise OptionError(
            f"shadow.of: a query of several sources cannot be a shadow ({len(cuts)} have the option): each "
            "would end its batches at other decisions: leave the option out"
        )
    for cut in cuts:
        written, own = ({name for name, _ in ends} for ends in (cut.written, cut.own))
        if cut.over and noted != cut.sink:
            raise OptionError(
                f"shadow.of={cut.sink}: this batch was planned in that query's place, and the checkpoint is "
                f"noted to be that of transactional.id={noted}. Nothing was written. Give eoslog shadow "
                "take-over, with that query's decision.topic, if it has one: it notes it, or says what to do"
            )
        if noted == cut.sink and sink == cut.sink and topic in written:
            continue
        if noted == cut.sink:
            raise OptionError(
                f"shadow.of={cut.sink}: this checkpoint has taken that query's place, and is no shadow's any "
                "more. Nothing was written. Leave shadow.of out, and give the writer transactional.id="
                f"{cut.sink}, kafka.group.id={cut.group} and that query's topic"
            )
        if sink == cut.sink:
            raise OptionError(
                f"transactional.id={sink} is that of the query that this one shadows, and would stop it: "
                "give the shadow another one. To take over, see shadow.md#taking-over"
            )
        if group == cut.group:
            raise OptionError(
                f"kafka.group.id={group} is that of the query that this one shadows: give the writer of the "
                "shadow another one, or none"
            )
        if topic not in own or topic in written:
            raise OptionError(
                f"a shadow writes to the topic of shadow.into ({', '.join(own)}) alone: set topic to it"
            )


def check_taken(
    left: Sequence[ShadowCut],
    sink: str | None,
    group: str | None,
    topic: str | None,
    noted: str | None,
    location: str,
    batch_id: int,
) -> None:
    """Raise OptionError if a shadow's checkpoint goes on without shadow.of into what belongs to the query
    that it has shadowed, and has not taken that one's place: both would write the same rows. Or if it has,
    and goes on into the topic that it had as a shadow.

    `left`: the decisions at which the batch before this one ends. `noted`, `topic`: as in check_apart.
    `location`: of the checkpoint."""
    for cut in left:
        if noted == cut.sink and topic in _own_topics(cut):
            raise OptionError(_into_its_own(cut, topic))
        if noted == cut.sink or not _shares(cut, sink, group, topic):
            continue
        raise OptionError(
            f"this checkpoint is a shadow's of the query with transactional.id={cut.sink}, has not taken "
            "that query's place, and is started without shadow.of into what is that query's: both would "
            "write the same rows. Nothing was written. Let it take over: eoslog shadow take-over "
            f"{location}. For it to be a shadow again, remove what this start has planned: eoslog checkpoint "
            f"rewind {location} --to-batch {batch_id - 1}"
        )


def check_noted(left: Sequence[ShadowCut], query: str, notes: Iterable[Note | None], location: str) -> None:
    """Raise OptionError if a shadow's checkpoint goes on without shadow.of, and the query has taken the other
    one's place, whose decisions are not where this one looks. `notes`: of that one's group."""
    for cut in left:
        if any(note is not None and (note.sink, note.query) == (cut.sink, query) for note in notes):
            raise OptionError(
                f"this query has taken the place of the one with transactional.id={cut.sink}, and its "
                "checkpoint does not say so: readers of that query's topic would miss its rows. Nothing was "
                f"written. Give eoslog shadow take-over {location} --decision-topic, with the decision.topic "
                "of that query: it notes it"
            )


def check_left(
    cut: ShadowCut,
    sink: str | None,
    group: str | None,
    topic: str | None,
    noted: Sequence[str],
    location: str,
    batch_id: int,
) -> None:
    """The same of a checkpoint that has gone on without shadow.of for a batch or more. `cut`: where it ended
    as a shadow. `noted`: the sinks that it was given to since, the present one first. Who has taken over may
    be given other names later, but not those that it had as a shadow."""
    taken = cut.sink in noted
    if taken and noted[0] == cut.sink != sink and topic in _own_topics(cut):
        raise OptionError(_into_its_own(cut, topic))
    if taken or not _shares(cut, sink, group, topic):
        return
    raise OptionError(
        f"this checkpoint was a shadow's of the query with transactional.id={cut.sink}, has gone on without "
        "shadow.of since, and is started into what is that query's: rows would be there twice, or missing. "
        f"Nothing was written. For it to be a shadow again, give eoslog checkpoint rewind {location} "
        f"--to-batch {batch_id - 1}, and start it as it was with shadow.of; or begin anew, "
        f"{ANEW}"
    )


def _shares(cut: ShadowCut, sink: str | None, group: str | None, topic: str | None) -> bool:
    """Whether one of these is the query's that is shadowed. `topic` None: each row names its own."""
    written = {name for name, _ in cut.written}
    return topic is None or topic in written or sink == cut.sink or group == cut.group


def _own_topics(cut: ShadowCut) -> set[str]:
    """What the shadow alone writes to."""
    own, written = ({name for name, _ in ends} for ends in (cut.own, cut.written))
    return own - written


def _into_its_own(cut: ShadowCut, topic: str | None) -> str:
    written = sorted({name for name, _ in cut.written})
    return (
        f"this checkpoint has taken the place of the query with transactional.id={cut.sink}, and is "
        f"started into topic {topic}, which it had as a shadow: readers of that query's topic would "
        f"miss its rows. Nothing was written. Set topic={', '.join(written)}, "
        f"transactional.id={cut.sink} and kafka.group.id={cut.group}"
    )
