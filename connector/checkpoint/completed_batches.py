"""Compares the batches that a checkpoint has completed, or planned, with what sink and log have of them.

Pure rules, as start_checks.py.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn
from zlib import crc32

from eoslog.connector.checkpoint.accepted_differences import to_accept
from eoslog.connector.checkpoint.start_facts import WORD_NEW, Completed, RowsFound, StartFacts
from eoslog.connector.commit.faults import (
    CheckpointCopied,
    CheckpointOlder,
    DecisionGone,
    RowsGone,
)
from eoslog.connector.commit.places import Place, Seen, ended
from eoslog.connector.commit.task_reports import Batch
from eoslog.errors.pages import see


def check_completed(
    sink: str, completed: Completed, decided: Batch | None, accepted: Collection[str], last: str = "0"
) -> None:
    """Check that this sink has decided the batches that it got and that are completed.

    Batches after the last one that the checkpoint notes were run by another connector. `decided`: the query's
    last batch that it has decided. `last`: the word of the sink's last decision. Raises DecisionGone,
    RowsGone or CheckpointOlder unless that is accepted.
    """
    newest, since, rested, rows = completed
    begun = newest is not None or decided is not None
    if decided is not None and decided.batch_id >= max(-1 if n is None else n for n in (newest, rows.newest)):
        _check_put_back(sink, decided, rows, accepted)
    if newest is not None and rows.newest is not None:
        newest = min(newest, rows.newest)
    if newest is None or since is None or since > newest:
        _check_first_of_sink(sink, since, decided, rows, accepted)
        if begun:  # of this sink Spark has noted no batch: what another one got, or other queries, is done
            check_rows(sink, rows, accepted)
        return
    known = decided is not None and decided.batch_id >= newest
    if rows.unseen and not known:
        _check_unseen(sink, f"has completed batch {newest}", f"decisions-gone:{newest}", accepted)
    if known or not (rows.any or rows.followed):
        check_rows(sink, rows, accepted)
        return
    proven = rows.proven is not None and rows.proven >= newest
    forgotten = not rows.lacks and (proven or (decided is None and rested))
    if forgotten and not rows.followed:
        return
    if (word := f"decisions-gone:{newest}") in accepted:
        return
    if forgotten or (rows.followed and decided is None and not (rows.lacks or rows.undecided)):
        _refuse_followed(sink, f"has completed batch {newest}", rows, to_accept(word, accepted))
    _refuse_completed(sink, completed, newest, decided, accepted, last)


def _refuse_completed(
    sink: str,
    completed: Completed,
    newest: int,
    decided: Batch | None,
    accepted: Collection[str],
    last: str,
) -> NoReturn:
    """Raise DecisionGone: the sink has decided less than the checkpoint has completed."""
    _, since, _, rows = completed
    others, accept = _by_others(completed), to_accept(f"decisions-gone:{newest}", accepted)
    known = -1 if decided is None else decided.batch_id
    known = max(known, -1 if rows.proven is None else rows.proven)  # a start has decided that one again
    found, begins = "none of this query", "what it was at first"
    if known < 0 and ((since is not None and since < newest) or others):
        begins = (
            "the last line of offsets/ of the last batch whose rows are in the sink's topics (what it was at "
            "first, if there are none)"
        )
    if known >= 0:
        found = f"batch {known} as its last one"
        begins = f"the last line of offsets/{known} in this checkpoint"
    said = f"sink {sink}: the checkpoint has completed batch {newest}, and the sink knows {found}"
    anew = (
        "startingOffsets=committed (with their transactional.id and kafka.group.id in source and sink), if "
        "these batches had one of them, else "
        f"startingOffsets={begins} and {to_accept(f'{WORD_NEW}:{last}', accepted)}"
    )
    if rows.undecided:
        raise DecisionGone(
            f"{said}: the cluster has lost decisions, and a part of the rows of later batches is visible"
            f"{_some(rows.undecided)}. Others may be gone{_some(rows.lacks)}. Nothing was written. Look for "
            "the rows of these batches with a reader of committed data, and publish those that are missing; "
            f"then set {accept}, and the query goes on behind them. Or, if what is visible may be there "
            f"twice, start with a new checkpoint and {anew}.{_twice(others)}"
        )
    raise DecisionGone(
        f"{said}: the cluster has lost decisions, and the rows of these batches with them"
        f"{_some(rows.lacks)}. Were the brokers restored from an older copy? Nothing was written. Restore "
        f"the checkpoint that belongs to that copy; or start with a new one at the copy's offsets: {anew}."
        f"{_twice(others)} If nothing is missing, as another connector wrote these batches or the group was "
        f"idle for longer than offsets.retention.minutes, set {accept}"
    )


def check_undecided(story: StartFacts) -> None:
    """Check that nothing is visible behind the sink's last decision, where a new checkpoint begins: it would
    be written again. Raises DecisionGone, CheckpointOlder unless that is accepted."""
    undecided = story.rows.undecided
    # a word of their own: another difference of a new checkpoint may be accepted already
    rows = f"rows-{crc32(_some(undecided).encode()):08x}"
    last = rows if story.decided is None else f"{story.last_written}:{rows}"
    if not undecided or (word := f"{WORD_NEW}:{last}") in story.accepted:
        return
    if story.decided is None:
        raise CheckpointOlder(
            f"sink {story.sink}: the checkpoint has completed no batch, but rows that the sink may have "
            f"written have become visible since this query's first start{_some(undecided)}. The cluster "
            "does not have their decision any more. If an older copy of the checkpoint was put back, these "
            "rows would be written again. Nothing was written. Bring the right checkpoint back, which is the "
            f"newest. If these rows may be there twice, set {to_accept(word, story.accepted)}"
        )
    raise DecisionGone(
        f"sink {story.sink}: the checkpoint is new, and begins where the sink's last decision ended "
        f"({story.decided}). Later rows of the sink are visible{_some(undecided)}, so the cluster has lost "
        "decisions, and these rows would be written again. Nothing was written. Start with the checkpoint of "
        "these batches, if it is there. If these rows may be there twice, set "
        f"{to_accept(word, story.accepted)}"
    )


def _check_first_of_sink(
    sink: str, since: int | None, decided: Batch | None, rows: RowsFound, accepted: Collection[str]
) -> None:
    """Check that no rows of the sink are visible, of which no batch is decided or done, as it was given the
    batches from `since` on: after a change of the name, or on another cluster. Raises CheckpointOlder unless
    that is accepted."""
    if decided is not None or not rows.undecided or (word := f"decisions-gone:{since}") in accepted:
        return
    raise CheckpointOlder(
        f"sink {sink}: it gets its first batch of this query, batch {since}, and rows of it are visible "
        f"already{_some(rows.undecided)}. The cluster does not have their decision any more. If an older "
        "copy of the checkpoint was put back, they would be written again. Nothing was written. Bring the "
        f"right checkpoint back, which is the newest. If others have written them, set "
        f"{to_accept(word, accepted)}"
    )


def check_moved(
    sink: str,
    batch: Batch,
    unknown: Batch | None,
    rows: Sequence[str],
    accepted: Collection[str],
    *,
    forgotten: bool,
) -> None:
    """Check that a cluster to which the query moves, by its options, knows no batches of it that the
    checkpoint does not know. `unknown`: the last one that it knows, of a start which the checkpoint does not;
    `forgotten`: it knows that there were some; `rows`: where rows of the sink are younger than the last one
    of the checkpoint. `batch`: to be written. Raises CheckpointOlder unless that is accepted."""
    if not (unknown is not None or rows or forgotten):
        return
    if (word := f"decisions-gone:{batch.batch_id}") in accepted:
        return
    why = "the sink's decisions are forgotten there"
    if rows:
        why = f"the sink has rows there that are younger than the checkpoint's last ones{_some(rows)}"
    if unknown is not None:
        why = f"the sink has decided {unknown} there, by a start that the checkpoint does not know"
    raise CheckpointOlder(
        f"sink {sink}: the query moves to another cluster with {batch}, and it has been there before: {why}. "
        "If an older copy of the checkpoint was put back, rows would be written again. Nothing was written. "
        "Bring the right checkpoint back, which is the newest. If these rows may be there twice, set "
        f"{to_accept(word, accepted)}"
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


def check_last(sink: str, batch: Batch, rows: RowsFound, accepted: Collection[str]) -> None:
    """Check that a planned batch that is decided, though the sink knows nothing of it, is the last one: later
    ones would be written again. Raises CheckpointOlder unless that is accepted."""
    if not rows.followed or (word := f"decisions-gone:{batch.batch_id}") in accepted:
        return
    _refuse_followed(sink, f"is at batch {batch.batch_id}", rows, to_accept(word, accepted))


def check_run_again(
    sink: str, batch: Batch, leads_to: Batch, decided: Batch | None, accepted: Collection[str]
) -> None:
    """Check that the batches of a restored checkpoint that run again for their state alone, from `batch` up
    to `leads_to`, are decided: else rows would be written again. Raises DecisionGone unless that is
    accepted."""
    number = leads_to.batch_id
    if batch.batch_id == number or (decided is not None and decided.batch_id >= number):
        return
    if (word := f"decisions-gone:{number}") in accepted:
        return
    raise DecisionGone(
        f"sink {sink}: the checkpoint was restored, and runs batches {batch.batch_id} to {number} again for "
        "their state alone. The cluster does not have their decision any more, as the sink was idle for "
        "longer than offsets.retention.minutes, or its group was deleted: their rows would be written again. "
        "Nothing was written. Write everything again into another topic, with another transactional.id and a "
        f"new checkpoint; or, if these rows may be there twice, set {to_accept(word, accepted)}"
    )


def check_whole(sink: str, batch: Batch, noted: int, accepted: Collection[str]) -> None:
    """Check that the batch which is run now is not before the last one that eoslog has noted in the
    checkpoint, of which no decision tells. Raises CheckpointOlder unless that is accepted."""
    if noted <= batch.batch_id or (word := f"decisions-gone:{noted}") in accepted:
        return
    raise CheckpointOlder(
        f"sink {sink}: eoslog has noted batch {noted} of this query in the checkpoint, and Spark's files "
        f"there lead to batch {batch.batch_id}: the folder was copied in part, or lost files. The cluster "
        "does not have that batch's decision any more, so rows would be written again, or left out. Nothing "
        "was written. Bring the right checkpoint back, all of its folder. If rows may be missing or there "
        f"twice, set {to_accept(word, accepted)}"
    )


def check_first(sink: str, accepted: Collection[str]) -> None:
    """A checkpoint has completed no batch of a sink, whose decisions the cluster has forgotten, or may have,
    and nothing says where their rows would be. Raises CheckpointOlder unless that is accepted."""
    _check_unseen(sink, "has completed no batch of it", f"{WORD_NEW}:0", accepted)


def _check_unseen(sink: str, stands: str, word: str, accepted: Collection[str]) -> None:
    if word in accepted:
        return
    raise CheckpointOlder(
        f"sink {sink}: the checkpoint {stands}, the cluster does not have the sink's decisions any more, and "
        "nothing says to which topics rows of later batches went, if there were any. If an older copy of the "
        "checkpoint was put back, they would be written again. Nothing was written. Bring the right "
        f"checkpoint back, which is the newest. If this one is that, set {to_accept(word, accepted)}"
    )


def _refuse_followed(sink: str, stands: str, rows: RowsFound, accept: str) -> NoReturn:
    """Without decisions nobody knows whether there were later batches. `stands`: what the checkpoint does."""
    raise CheckpointOlder(
        f"sink {sink}: the checkpoint {stands}, the cluster does not have the sink's "
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


def check_rows(sink: str, rows: RowsFound, accepted: Collection[str]) -> None:
    """Check that the log has the rows of the last batch that is decided and done. Raises RowsGone unless that
    is accepted."""
    if not rows.lacks or (word := f"rows-gone:{rows.batch}") in accepted:
        return
    raise RowsGone(
        f"sink {sink}: batch {rows.batch} is decided, and the cluster has lost rows of it or of "
        f"batches before it{_some(rows.lacks)}. Was a topic deleted, or were brokers restored from an older "
        "copy? Nothing was written. To write these rows again, set the checkpoint back (eoslog checkpoint "
        "rewind), or begin with a new checkpoint and a new transactional.id. When it is set back, or if they "
        f"are not wanted any more, set {to_accept(word, accepted)}"
    )


def check_forgotten(
    sink: str,
    batch: Batch,
    seen: Mapping[Place, Seen],
    accepted: Collection[str],
    noted: Batch | None = None,
    topics: Collection[str] | None = None,
) -> bool:
    """Whether a planned batch is decided that the sink knows nothing of, and whose rows may be in the log:
    all or none of its transactions must be committed. What was removed from the log tells nothing, nor does a
    topic of another id: it was made anew, or is another cluster's. `seen`: what the log shows at the places
    of its rows. `noted`: the batch as an earlier run was about to decide it. `topics`: where the query
    writes, if it may be a copy in another folder; empty: where its rows say. Raises DecisionGone,
    CheckpointCopied unless that is accepted."""
    by_writer = ended(seen)
    how = set(by_writer.values())
    written, missing = (f"batch-{word}:{batch.query_id}:{batch.batch_id}" for word in ("written", "missing"))
    readers_may_have_it = {Seen.COMMITTED, Seen.REMOVED, Seen.REPLACED} & how
    if noted is not None and not noted.repeats(batch) and readers_may_have_it:
        if missing in accepted:
            return False
        raise DecisionGone(
            f"sink {sink}: the log has, or had, rows of {batch}, and the checkpoint plans it with other ends "
            "now: it has lost the plan, by a power cut or as a copy, and the cluster has forgotten the "
            "decision. Nothing was written. Bring the right checkpoint back, which is the newest. If those "
            f"rows may be there twice, set {to_accept(missing, accepted)}, and the batch is written as it is "
            "planned now"
        )
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
            f"{to_accept(written, accepted)}, and the query goes on behind them; if they have a part, "
            "publish the rest yourself before. If they have none, set "
            f"{to_accept(missing, accepted)}, and they are written again"
        )
    visible = {place.topic for place, one in seen.items() if one is Seen.COMMITTED}
    elsewhere = [] if topics is None else sorted(visible - {*topics})
    if elsewhere and missing not in accepted:
        where = ", ".join(sorted(topics or ())) or "topics that its rows name"
        raise CheckpointCopied(
            f"sink {sink}: rows of {batch} are visible in {', '.join(elsewhere)}, and this query writes to "
            f"{where}: this checkpoint is a copy, or was moved, and the cluster has forgotten the decision. "
            "Nothing was written. If both copies are to go on, make this one a query of its own (eoslog "
            "checkpoint fork), and to write these rows here, too, set "
            f"{to_accept(missing, accepted)}. If the query was moved, and goes on behind them, set "
            f"{to_accept(written, accepted)}"
        )
    return how == {Seen.COMMITTED} and not elsewhere


def others_batches(completed: Completed) -> str:
    """A sentence about batches that another connector has run on the checkpoint. "": there are none."""
    which = _by_others(completed)
    return which and (
        f"{which} run by another connector, as the checkpoint notes none of them (eoslog/places): the "
        f"query goes on behind them. {see('another-connector-has-run-batches')}"
    )
