"""What the sink does of a shadow: keeps it apart from the query that it shadows, stands still for a
take-over, and writes in that query's names when it has taken over.

What a shadow writes to follows from its checkpoint alone: from the plan of the batch and the note
`eoslog/sink`. So a start with the shadow's options goes on where the shadow has taken over.
"""

import json
from collections.abc import Callable
from dataclasses import replace

from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.checkpoint.shadow_check import (
    check_apart,
    check_left,
    check_not_its_own,
    check_noted,
    check_taken,
    place_of,
)
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.checkpoint.standstill import TAKE_OVER, TakeOverWish, stand_still
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.leave_sink import fence, stable_decision
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.task_reports import Batch, Begun, Stamp
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.offsets.offsets import ShadowCut, shadow_from_json, to_json
from eoslog.connector.options.sink_options import Guarantee, SinkOptions
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink.start_of_run import committed_offsets

LEFT_SHADOW = "left-shadow"
"""The name of a note: where a checkpoint ended as a shadow, when it goes on without shadow.of."""
Runners = Callable[[SinkOptions], Runner]


def in_its_place(options: SinkOptions, view: CheckpointView, runners: Runners) -> SinkOptions:
    """The options with which the planned batch is written: those of the query whose place this one has, if it
    was a shadow. Raises OptionError if a shadow would write what is that query's, ShadowLost if its
    checkpoint is a copy of before it took over, CheckpointUnreadable."""
    number, checkpoint = view.batch.batch_id, view.checkpoint
    cuts = view.planned.shadows()
    before = None if cuts or not number else checkpoint.planned_if_kept(number - 1)
    left = before.shadows() if before is not None else []
    if not cuts and not left:
        return options
    noted = NotedSink.read(checkpoint)
    if noted is None or noted.sink not in {cut.sink for cut in (*cuts, *left)}:
        note_if_taken(options, view, runners)
        noted = _noted_place(options, view, runners)
    sink = None if noted is None else noted.sink
    check_not_its_own(cuts, view.batch.query_id, sink)
    place = None if noted is None else place_of(cuts, number, sink, noted.since)
    if noted is not None and place is not None and options.transactional_id != place.sink:
        options = _named(options, checkpoint, view.planned, place.sink)
    given = options.transactional_id, options.group_id, options.topic
    if cuts:
        check_apart(cuts, *given, sink)
    else:
        check_taken(left, *given, sink, checkpoint.location, number)
        if sink != left[0].sink:
            check_noted(left, view.batch.query_id, _notes_of(options, view, left[0]), checkpoint.location)
        checkpoint.note(LEFT_SHADOW, json.dumps(to_json({}, shadow=left[0])))
    return options


def _notes_of(options: SinkOptions, view: CheckpointView, cut: ShadowCut) -> list[Note | None]:
    """The notes beside the offsets of the query that was shadowed."""
    cluster, wanted = shared_cluster(options.client), view.planned.topic_offsets()
    found = committed_offsets(cluster, cut.group, wanted, stable=False)
    return [one.note for one in found.values()]


def check_left_shadow(options: SinkOptions, view: CheckpointView) -> None:
    """Check the first batch of a start without shadow.of, if earlier batches were a shadow's. Those right
    behind them are checked in in_its_place(). Raises OptionError, CheckpointUnreadable."""
    text = None if view.planned.shadows() else view.checkpoint.noted(LEFT_SHADOW)
    cut = None if text is None else shadow_from_json(json.loads(text))
    noted = None if cut is None else NotedSink.read(view.checkpoint)
    if cut is None or noted is None:
        return
    sinks = [noted.sink or "", *(name for _, name, _ in noted.former)]
    given = options.transactional_id, options.group_id, options.topic
    check_left(cut, *given, sinks, view.checkpoint.location, view.batch.batch_id)


def _noted_place(options: SinkOptions, view: CheckpointView, runners: Runners) -> NotedSink | None:
    """The checkpoint's note of its sink. If the shadow has taken over, as the source has found or as nobody
    has asked, that is noted first, as long as the last decision is that of the batch before: who carried it
    out has died, or this is a copy of before. Raises CommitFault, CheckpointUnreadable."""
    noted, number = NotedSink.read(view.checkpoint), view.batch.batch_id
    before = view.checkpoint.planned_if_kept(number - 1)
    cuts = view.planned.shadows()
    over = [cut for cut in cuts if cut.over] if cuts or before is None else before.shadows()
    if len(over) != 1 or before is None or (noted is not None and noted.sink == over[0].sink):
        return noted
    last = runners(options).run(observed_decision(Sink(over[0].sink)))
    made = None if last is None else last.of_query
    if made is None or not Batch(view.batch.query_id, number - 1, before.digest).repeats(made.batch):
        return noted
    cluster = None if noted is None else noted.cluster
    becomes = NotedSink(over[0].sink, cluster, number - 1, over[0].group, options.decision_topic)
    view.checkpoint.sync_completed()  # the shadow's own sink knows of its batches, this one does not
    note_taken(view.checkpoint, becomes, last)
    return becomes


def as_begun(options: SinkOptions, begun: Begun | Stamp | None) -> SinkOptions:
    """The options with which a batch was begun, see in_its_place(). Raises CheckpointUnreadable."""
    if begun is None or begun.sink_id == (options.transactional_id or begun.batch.query_id):
        return options
    assert options.checkpoint_location is not None  # otherwise it had the names that were given
    checkpoint = Checkpoint.at(options.checkpoint_location)
    return _named(options, checkpoint, checkpoint.planned(begun.batch.batch_id), begun.sink_id)


def _named(options: SinkOptions, checkpoint: Checkpoint, planned: Planned, sink: str) -> SinkOptions:
    """The options in the names of the query whose sink this is, in whose place a batch is written."""
    cut = next(cut for cut in planned.shadows() if cut.sink == sink)
    noted = NotedSink.read(checkpoint)
    decisions = options.decision_topic if noted is None else noted.decisions
    (topic,) = {topic for topic, _ in cut.written}
    return replace(options, transactional_id=sink, group_id=cut.group, topic=topic, decision_topic=decisions)


def note_if_taken(
    options: SinkOptions, view: CheckpointView, runners: Runners, *, ended: bool = False
) -> bool:
    """Note that the shadow has taken over, if it has: who carried it out may have died after its decision.
    Returns whether it has. `ended`: no such decision is to be made any more; call it so when the shadow's own
    sink is acquired. Raises CommitFault, CheckpointUnreadable."""
    wish = TakeOverWish.read(view.checkpoint)
    if wish is None or wish.becomes is None or wish.becomes.sink is None:
        return False
    noted = NotedSink.read(view.checkpoint)
    if noted is not None and noted.sink == wish.becomes.sink:  # that is done
        view.checkpoint.forget(TAKE_OVER)
        return False
    becomes, sink = wish.becomes, Sink(str(wish.becomes.sink))
    runner = runners(replace(options, decision_topic=becomes.decisions))
    if ended:
        runner.run(fence(sink))
    last = runner.run(stable_decision(sink) if ended else observed_decision(sink))
    decided = None if last is None else last.last_of(view.batch.query_id)
    if last is None or decided is None or decided.batch_id < becomes.since:
        if ended:
            view.checkpoint.forget(TAKE_OVER)
        return False
    note_taken(view.checkpoint, becomes, last)
    return True


def note_taken(checkpoint: Checkpoint, becomes: NotedSink, last: Decision | None) -> None:
    """Note whose sink gets the query's batches from now on, the first of which it has decided. `last`: its
    last decision. Raises CheckpointUnreadable."""
    before = NotedSink.read(checkpoint)
    if before is None or before.sink != becomes.sink:  # it misses rows of that sink's queries alone then
        made = None if last is None else last.of_query
        places = () if made is None else made.places or made.older
        digest = checkpoint.planned(becomes.since).digest
        note = NotedPlaces(((becomes.since, places),), () if made is None else made.older, digest=digest)
        note.write(checkpoint, durable=True)  # Spark's note that the batch is done may come later
    becomes.write(checkpoint)
    checkpoint.forget(TAKE_OVER)


def stand_if_wanted(options: SinkOptions, planned: Planned | None) -> None:
    """Stand still after a shadow's batch, which is decided and can be read, as long as that is wanted. Raises
    CommitFault if a take-over has begun and does not end, CheckpointUnreadable."""
    if planned is None or options.checkpoint_location is None or not planned.shadows():
        return
    if options.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    checkpoint = Checkpoint.at(options.checkpoint_location)
    state = None if options.state is None else options.state.topic
    if stand_still(checkpoint, planned.batch_id, state) or TakeOverWish.read(checkpoint) is None:
        return
    raise CommitFault(
        f"batch {planned.batch_id} is decided, and the take-over that was begun after it has not ended: "
        "whoever carried it out has died, or waits for a broker. Start the query again with the same "
        "options: it finds out whether it has taken over, and goes on"
    )
