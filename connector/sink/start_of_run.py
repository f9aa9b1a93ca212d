"""The start of a sink's run: reads what start_checks.py compares, and logs its warnings.

It runs once in a run, around the first begin: Metadata before it, after it OffsetFetch, and finding the
group's coordinator. Then it looks at the sink's last rows in the log, and at what stands behind them.
"""

import logging
import time
import uuid
from collections.abc import Mapping
from functools import partial

from eoslog.client.admin import groups as group_offsets
from eoslog.client.admin.topics import EARLIEST, cut_below, list_offsets
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.client.wire.retry import retrying
from eoslog.connector.checkpoint.accepted_differences import acceptable
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.checkpoint_view import CheckpointView, done_in, has_rested, kept_of
from eoslog.connector.checkpoint.cluster_check import (
    check_done_there,
    check_group_cluster,
    check_sink_cluster,
)
from eoslog.connector.checkpoint.completed_batches import (
    check_completed,
    check_first,
    check_forgotten,
    check_last,
    check_moved,
    check_run_again,
    check_whole,
    others_batches,
)
from eoslog.connector.checkpoint.new_checkpoint import (
    check_forgotten_name,
    check_new_checkpoint,
    check_plain_start,
    left_out,
    remade,
    takes_place,
    unread,
)
from eoslog.connector.checkpoint.noted_places import NotedPlaces
from eoslog.connector.checkpoint.noted_sink import NotedSink, NotedStarts, abridged
from eoslog.connector.checkpoint.refreshed_flow import check_not_refreshed
from eoslog.connector.checkpoint.source_changes import canonical_text, grown
from eoslog.connector.checkpoint.spark_logs import Planned, is_eoslog
from eoslog.connector.checkpoint.start_checks import (
    check_followed,
    check_given,
    check_story,
    check_taken_over,
    check_unnoted,
)
from eoslog.connector.checkpoint.start_facts import Completed, OtherSink, StartFacts
from eoslog.connector.commit.begin import (
    KnownStarts,
    check_left,
    check_noted_place,
    check_start,
    has_forgotten,
    is_anothers,
)
from eoslog.connector.commit.commands import Refused
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import KEPT_PLACES, Decision
from eoslog.connector.commit.leave_sink import (
    ended_with,
    fence,
    has_moved_away,
    leave,
    stable_decision,
    taken_over,
)
from eoslog.connector.commit.marker_proof import end_forgotten
from eoslog.connector.commit.move_decision import give_up, move_decision
from eoslog.connector.commit.observe import observed, observed_decision
from eoslog.connector.commit.places import Place, Places, Seen
from eoslog.connector.commit.saved_state import Saving
from eoslog.connector.commit.sink_transaction import check_ended
from eoslog.connector.commit.task_reports import Batch, Begun, Left
from eoslog.connector.commit.token_write import check_not_in_foreach, note_stream
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.group_notes import Note, NotedOffset, read_note
from eoslog.connector.offsets.offsets import Offsets
from eoslog.connector.options.sink_options import SinkOptions, StateOptions
from eoslog.connector.run.runner import Runner
from eoslog.connector.run.source_ends import planned_ends
from eoslog.connector.saved.run_again import check_restored
from eoslog.connector.sink.noted_rows import (
    behind_the_first,
    completed_in,
    correct,
    forget_lacking,
    is_unseen,
    not_of_others,
    note_moved,
    open_of_visible,
    places_decided,
    places_of_queries,
    rows_behind,
    rows_found,
    seen_of_planned,
    unnumber,
    visible_since,
    wait_for_rows,
)
from eoslog.errors import RetriesExhausted
from eoslog.errors.pages import see
from eoslog.protocol.errors import TopicAuthorizationFailed
from eoslog.protocol.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)


def known_starts(checkpoint: Checkpoint, options: SinkOptions) -> KnownStarts:
    """What a checkpoint knows of its query's starts. Raises CheckpointUnreadable."""
    topics = [options.topic, options.deadletter_topic] if options.topic is not None else []
    words, place = NotedStarts.read(checkpoint).words, abridged(checkpoint.location)
    known = [topic for topic in topics if topic is not None]
    return KnownStarts(words, place, known, acceptable(options.accepted), options.topic or "")


class StartOfRun:
    """The comparisons around the first begin of a run."""

    def __init__(self, options: SinkOptions, view: CheckpointView, sink: Sink, runner: Runner) -> None:
        self._options, self._view, self._sink, self._runner = options, view, sink, runner
        self._cluster = shared_cluster(options.client)
        self._group = options.group_of(sink.id)
        self._upgraded = False
        self._left: Left | None = None
        self._started = self._is_again = False
        self.acquired = False
        """Whether the sink was acquired before its begin: what this process remembers of it is over."""
        self._observed: dict[str, Decision | None] = {}

    def before(self) -> None:
        """Compare the clusters, leave the checkpoint's former sink if it was another one, and note this one.

        Call it before the sink is acquired. Raises WrongCluster, SinkChanged, TakenOver, StartsElsewhere,
        CommitFault, CheckpointUnreadable.
        """
        view, sink, accepted = self._view, self._sink, self._options.accepted
        check_restored(view.checkpoint)
        if self._options.transactional_id is None and view.completed is None:
            repeats = check_not_refreshed(view.checkpoint, accepted)
            if repeats:
                logger.warning(repeats)
        if (noted := view.checkpoint.newest_completed()) is not None:
            view.checkpoint.check_completed(noted)
        now, group = cluster_id(self._cluster), self._group
        if self._options.group_id is not None:
            check_group_cluster(view.planned.clusters(), now, self._options.group_id)
        notes = self._runner.run(check_not_in_foreach(view.batch, acceptable(accepted)))
        given = NotedSink.read(view.checkpoint)
        self._look_for_a_successor(given)
        if given is None and not is_planned_here(view.planned):
            decided = _of_query(self._runner.run(stable_decision(sink)), view)
            check_unnoted(sink.id, view.batch, view.completed, decided, accepted)
        moved = given is not None and check_sink_cluster(given.cluster, now, sink.id, accepted)
        if given is not None and given.sink is not None and not moved:
            check_noted_place(given.sink, given.decisions, self._options.decision_topic)
        if given is not None and given.sink not in (None, sink.id) and not moved:
            self._remember(Sink(str(given.sink)), given.group)
            self._leave(given, str(given.sink))
        if self._left is not None:
            NotedStarts.read(view.checkpoint).learn(view.checkpoint, self._left.word, view.batch.batch_id)
        if given is None and _is_first(view) and self._options.transactional_id is not None:
            self._check_name()
        self._upgraded = given is None
        is_new = given is None or given.sink != sink.id or moved
        if is_new:
            view.checkpoint.sync_completed()  # the new sink knows nothing of the batches that are done
        if moved and given is not None:
            self._check_moved(given)
            noted = NotedPlaces.read(view.checkpoint).newest
            if check_done_there(sink.id, view.batch, noted, accepted):
                self._decide_again(sink, group, self._acquire(sink), view.planned, is_here=False)
            note_moved(view.checkpoint, self._options.topic or "")
        elif is_new:
            unnumber(view, self.known_starts.topics)  # its batches are another sink's
        else:
            self._remember(sink, group)
        if given is None or is_new or given.group != group:
            since = view.batch.batch_id if given is None or is_new else given.since
            former = () if given is None else given.left_for(sink.id, now, view.batch.batch_id)
            topic = self._options.decision_topic
            NotedSink(sink.id, now, since, group, topic, former).write(view.checkpoint)
        self._started = wait_for_rows(view, self._options.topic)
        self._is_again = not is_new and given is not None and given.gets_first(view.batch.batch_id)
        self._check_first()
        self._check_beginning()
        self._runner.run(note_stream(sink, view.batch, notes))

    def _check_moved(self, given: NotedSink) -> None:
        """Check that the cluster to which the query moves knows of no batch that the checkpoint does not:
        under this name and the one before. Raises CheckpointOlder."""
        view, known, accepted = self._view, self.known_starts, self._options.accepted
        for cluster, name, since in given.former:
            if cluster == known_id(self._cluster):
                last = self._runner.run(observed_decision(Sink(name)))
                unknown = decided_since(view.checkpoint, last, view.batch.query_id, since)
                check_moved(name, view.batch, unknown, (), accepted, forgotten=False)
        for name in sorted({self._sink.id, *([] if given.sink is None else [given.sink])}):
            last = self._observed.get(name)
            decided = None if last is None else _of_query(last, view)
            made = None if decided is None or last is None else last.of(view.batch.query_id)
            is_here = decided is not None and (  # else check_checkpoint and check_story compare it
                has_moved_away(last, Sink(name), decided.query_id)
                or decided.batch_id >= view.batch.batch_id
                or view.checkpoint.planned_if_kept(decided.batch_id) is not None
                or (made is not None and made.start is not None and made.start.word in known.words)
            )
            forgotten, rows = False, tuple[str, ...]()
            if last is None:
                forgotten = self._runner.run(has_forgotten(Sink(name)))
                rows = visible_since(self._cluster, view.checkpoint, name, known.topics)
            unknown = None if is_here else decided
            check_moved(name, view.batch, unknown, rows, accepted, forgotten=forgotten)

    def _check_name(self) -> None:
        """Check that a new checkpoint does not begin under a name whose decisions the cluster has forgotten,
        unless the group still says where that query ended: of each partition, and after one batch."""
        if not self._runner.run(has_forgotten(self._sink)):
            return
        known = known_id(self._cluster)
        wanted = of_group(self._view.planned, self._group, self._sink.id, known).topic_offsets()
        committed = committed_offsets(self._cluster, self._group, wanted, stable=False)
        by_default = self._sink.offsets_group  # which has them while kafka.group.id is left out
        later = committed_offsets(self._cluster, by_default, wanted, stable=False)
        notes = {found.note for found in (*committed.values(), *later.values())}
        ended = {("",) if note is None else (note.sink, note.query, note.batch) for note in notes}
        is_noted = bool(wanted) and wanted.keys() <= committed.keys() and len(ended) == 1
        if not (is_noted and next(iter(ended))[0] == self._sink.id):
            check_forgotten_name(self._sink.id, self._options.accepted)

    def _check_first(self) -> None:
        """Check that a first batch, which is started again, is no copy's after whose batches the cluster has
        forgotten decisions: its rows name their topics, so nobody can look there. Raises CheckpointOlder."""
        view, sink = self._view, self._sink
        if not (self._started and _is_first(view)) or self._observed.get(sink.id) is not None:
            return
        unseen, rested = is_unseen(view.checkpoint, self.known_starts.topics)
        if unseen and (rested or self._runner.run(has_forgotten(sink))):
            check_first(sink.id, self._options.accepted)

    def _remember(self, sink: Sink, group: str | None) -> None:
        """Decide the newest batch again whose rows are visible, if the cluster has lost the decision of
        `sink`, which the checkpoint has with the group `group`.

        Only decided rows become visible. Raises DecisionGone if some of them are and others are not.
        """
        view, noted = self._view, NotedPlaces.read(self._view.checkpoint).newest
        last = self._observed.get(sink.id)
        if noted >= 0 and last is None:  # or the next one is on its way, which hides it: that one is ended
            found = self._runner.run(observed(sink))
            last = self._acquire(sink) if isinstance(found, Refused) else found
        known = _of_query(last, view)
        if noted < 0 or (known is not None and known.batch_id >= noted):
            correct(view.checkpoint, known, last)
            return
        check_whole(sink.id, view.leads_to, noted, self._options.accepted)
        check_run_again(sink.id, view.batch, view.leads_to, known, self._options.accepted)
        if last is None and not self.acquired:  # not before: whoever is refused stops nobody
            last = self._acquire(sink)
            known = _of_query(last, view)
        seen = seen_of_planned(self._cluster, view, known)
        if Seen.COMMITTED in seen.values() or (known is None or known.batch_id < done_in(view)):
            rest = open_of_visible(self._cluster, view.checkpoint, known)
            if self._end_forgotten(sink, rest, commit=True):
                seen = seen_of_planned(self._cluster, view, known)
        planned: Planned | None = view.planned
        if not self._is_decided(sink, seen):
            rows = rows_found(self._cluster, view, known, last, topics=self.known_starts.topics)
            is_other = bool(seen) and rows.proven == view.batch.batch_id  # and is to be written as it is now
            number = None if rows.followed or is_other else rows.proven
            planned = None if number is None else view.checkpoint.planned_if_kept(number)
        if planned is not None:
            self.acquired = True
            self._decide_again(sink, group, last, planned)

    def _acquire(self, sink: Sink) -> Decision | None:
        """The sink's last decision, when its owner can make no other."""
        self.acquired = True
        return self._runner.run(taken_over(sink))

    def _is_decided(self, sink: Sink, seen: Mapping[Place, Seen]) -> bool:
        """Whether the planned batch is decided, of which the sink knows nothing. `seen`: what the log shows
        at the places of its rows. Raises DecisionGone, CheckpointOlder, CheckpointCopied."""
        view, starts, accepted = self._view, self.known_starts, self._options.accepted
        note = NotedPlaces.read(view.checkpoint)
        noted, topics = note.as_noted(view.batch), starts.topics if note.is_copied_to(starts.place) else None
        is_here = topics is None or {place.topic for place in seen} <= {*topics}
        if is_here and note.says_decided(view.batch, seen.values()):
            return True
        if not seen or not check_forgotten(sink.id, view.batch, seen, accepted, noted, topics):
            return False
        behind = rows_behind(self._cluster, view.checkpoint, view.batch.batch_id, sink.id, starts.topics)
        check_last(sink.id, view.batch, behind, accepted)
        return True

    def _decide_again(
        self,
        sink: Sink,
        group: str | None,
        last: Decision | None,
        planned: Planned,
        *,
        is_here: bool = True,
    ) -> None:
        """Decide a batch that is written. `is_here`: where its rows are is noted of this cluster."""
        view, source = self._view, None
        batch = Batch(view.batch.query_id, planned.batch_id, planned.digest)
        saving = self._saving(sink, batch, None if last is None else last.of_query)
        if group is not None:
            of_here = of_group(planned, group, sink.id, known_id(self._cluster))
            source = source_offsets(group, of_here, Note(sink.id, *batch[:2]))
        places = NotedPlaces.read(view.checkpoint).up_to(batch.batch_id + 1) if is_here else ()
        made = None if last is None or last.of_query is None else last.of_query.start
        start = NotedStarts.read(view.checkpoint).add(
            view.checkpoint, made, batch.batch_id + 1, self._options.topic or ""
        )
        rules = move_decision(
            sink, last, batch, source, view.completed, saving, planned.ends, start, places[-KEPT_PLACES:]
        )
        self._runner.run(rules)
        text = "%s is decided again: its rows are visible, and the cluster does not have the decision. %s"
        logger.warning(text, batch, see("the-cluster-has-forgotten-a-decision"))

    def _saving(self, sink: Sink, batch: Batch, kept: Decision | None) -> Saving | None:
        """What saves the query's state with a batch that is decided again, also where `kept` alone has it."""
        saved, options = None if kept is None else kept.saved, self._options
        state = options.state or (None if saved is None else StateOptions(saved.topic, 1))
        if state is None:
            return None
        from eoslog.connector.saved.save import CheckpointSaving  # others need no codec

        view, size = self._view, options.max_batch_bytes
        is_done = batch.batch_id == view.completed
        return CheckpointSaving(self._cluster, view.checkpoint, sink.id, batch, *state, size, is_done)

    @property
    def known_starts(self) -> KnownStarts:
        """What the checkpoint knows of its query's starts. Raises CheckpointUnreadable."""
        return known_starts(self._view.checkpoint, self._options)

    def _look_for_a_successor(self, given: NotedSink | None) -> None:
        """Raise TakenOver if another query has replaced this one, under its present or its former names.

        It is checked before the sink is acquired, which would stop that query, and again after that.
        """
        names = {(self._sink.id, self._group)}
        if given is not None and given.sink is not None:
            names.add((given.sink, given.group))
        for sink, group in sorted(names, key=str):
            last = self._observed[sink] = self._runner.run(observed_decision(Sink(sink)))
            self._check_taken_over(sink, group, last)
            if sink == self._sink.id:  # of another one, _leave tells what it has decided
                known = self.known_starts
                if last is not None and last.left is not None and self._returns(given, last):
                    self._left = last.left
                    known = known._replace(words=[*known.words, last.left.word])
                check_start(self._sink, last, self._view.batch, known)
                learn_accepted(self._view, last, known)
            by = successor(last, self._view, group, sink, known_id(self._cluster))
            check_followed(sink, self._view.batch, group, by, self._options.accepted)

    def _returns(self, given: NotedSink | None, last: Decision) -> bool:
        """Whether the checkpoint comes back to a sink that was left, from another sink or cluster."""
        if given is None:
            return False
        is_away = given.cluster not in (None, known_id(self._cluster))
        sink = self._sink
        return given.sink != sink.id or (is_away and has_moved_away(last, sink, self._view.batch.query_id))

    def _check_taken_over(self, sink: str, group: str | None, last: Decision | None) -> None:
        view = self._view
        if view.completed is None:
            return
        ends = of_group(view.planned, group, sink, known_id(self._cluster)).topic_offsets()
        before = view.checkpoint.planned_if_kept(view.batch.batch_id - 1)
        committed = committed_offsets(self._cluster, group, ends, stable=False)
        stands = (before or view.planned).topic_offsets()
        told, is_left = (sink, view.batch, group, committed, stands), sink != self._sink.id
        accepted, fresh = self._options.accepted, fresh_of(view, last)
        check_taken_over(*told, accepted, is_left=is_left, fresh=fresh)

    def _leave(self, given: NotedSink, old: str) -> None:
        batch, completed, accepted = self._view.batch, self._view.completed, self._options.accepted
        last = self._runner.run(stable_decision(Sink(old)))
        decided = last.last_of(batch.query_id) if last is not None else None
        left = last.left if last is not None else None
        if left is not None and (left.sink, left.query_id) != (self._sink.id, batch.query_id):
            check_left(Sink(old), left, self.known_starts)
        check_left_sink(self._options, self._runner, self._view, given, last)
        check_given(old, self._sink.id, decided, batch, accepted)
        if decided is None or decided.batch_id < batch.batch_id:
            self._runner.run(give_up(Sink(old), accepted))
            left, ended = noted_left(self._view, self._sink.id), ended_in(given, self._view)
            self._runner.run(leave(Sink(old), batch, completed, left, ended))
            logger.info("%s: sink %s is left for sink %s", batch, old, self._sink.id)

    def after(self, begun: Begun) -> None:
        """Compare checkpoint, decision and group, and log warnings.

        Call it when the sink is acquired, so that its former owner can no longer change the group.
        Raises DecisionGone, CheckpointOlder, CheckpointMismatch, StartsElsewhere, TakenOver.
        """
        view = self._view
        decided, undecided = places_decided(view.checkpoint, begun.ours, again=bool(begun.lost))
        self._end_forgotten(self._sink, undecided, commit=False)
        kept = kept_of(view, begun.decided)
        committed = settled_offsets(self._cluster, self._runner, self._sink, self._group, self._read_of(kept))
        last = None if begun.decided is None else self._runner.run(observed_decision(self._sink))
        others = self._others(committed) if _is_first(view) else {}
        before = [made for made in (last, *others.values()) if made is not None]
        known = begun.ours, last, before
        winners = () if last is None else last.winners
        again = {one.participant.identity for one in winners if one.partition in begun.lost}
        topics = self.known_starts.topics
        look = partial(
            rows_found, self._cluster, view, *known, sink=self._sink.id, again=again, topics=topics
        )
        rows = look()
        is_first = (self._started and _is_first(view)) or self._is_again
        if is_first and begun.decided is None and not before:
            behind = behind_the_first(self._cluster, view.checkpoint, self._sink.id, topics)
            rows = rows._replace(undecided=behind)
        if rows.lacks or begun.lost:  # a log that was cut has lost markers, too
            decided = decided if last is None else (*decided, *places_of_queries([last]))
            if self._end_forgotten(self._sink, decided, commit=True):
                rows = look()
        story = self._story(last, committed, others)._replace(
            decided=begun.decided,
            ended=None if kept is None else (kept.digest, kept.topic_offsets()),
            rested=has_rested(view, rows.newest),
            rows=rows,
            left_state=begun.left_state,
        )
        for warning in check_story(story):
            logger.warning(warning)
        if rows.lacks and not story.is_new:
            forget_lacking(self._cluster, view.checkpoint)
        if said := others_batches(story.done):
            logger.warning(said)
        if story.is_new:
            if takes_place(story):
                NotedPlaces((), places_of_queries(before)).write(view.checkpoint)
                if rows.lacks:
                    forget_lacking(self._cluster, view.checkpoint)
            _finish_others(story, self._runner, view, self._sink.id)

    def _check_beginning(self) -> None:
        """Raise StartsElsewhere if a new checkpoint begins elsewhere than where the sink's last query stands.

        It is checked before the sink is acquired, which would stop that query: a name that was given twice by
        mistake stops the second start alone. It is checked again after that, when nobody moves these places.
        """
        view, last = self._view, self._observed.get(self._sink.id)
        made = None if last is None else last.of_query
        if not _is_first(view) or made is None or made.batch.query_id == view.batch.query_id:
            return
        committed = committed_offsets(self._cluster, self._group, self._read_of(None), stable=False)
        story = self._story(last, committed, self._others(committed))
        if not takes_place(story):
            check_new_checkpoint(story._replace(decided=made.batch, left_state=made.saved is not None))

    def _read_of(self, kept: Planned | None) -> Offsets:
        """The group's partitions that the planned batch reads, or `kept`, the decided one."""
        wanted, now = Offsets(), known_id(self._cluster)
        for planned in (self._view.planned, *(() if kept is None else (kept,))):
            wanted |= of_group(planned, self._group, self._sink.id, now).topic_offsets()
        return wanted

    def _story(
        self,
        last: Decision | None,
        committed: Mapping[TopicPartition, NotedOffset],
        others: Mapping[str, Decision],
    ) -> StartFacts:
        """What checkpoint, group and the sink's `last` decision tell; `others`: of other sinks."""
        view, left = self._view, plan_of(last)
        given = None if self._upgraded else NotedSink.read(view.checkpoint)
        return StartFacts(
            sink=self._sink.id,
            batch=view.batch,
            ends=view.planned.topic_offsets(),
            begins=view.planned.each_beginning(),
            completed=view.completed,
            decided=None,
            ended=None,
            group=self._group,
            committed=committed,
            taken=view.planned.taken(),
            since=None if given is None else given.since,
            accepted=self._options.accepted,
            followed_by=successor(last, view, self._group, self._sink.id, known_id(self._cluster)),
            left=left,
            without_topics=view.planned.without_topics(),
            others={sink: OtherSink(made.batch, made.went_to) for sink, made in others.items()},
            unread=unread_of(self._cluster, view, left, committed),
            remade=remade(left, view.planned),
            cut=cut_of(self._cluster, view, left, committed),
            word="" if last is None else last.word,
            went_to=elsewhere(self._sink, last, committed, self._options),
            left_out=left_out_of(self._cluster, view, left),
            fresh=fresh_of(view, last),
        )

    def _end_forgotten(self, sink: Sink, places: Places, *, commit: bool) -> bool:
        """End what no coordinator comes back to at these places. Returns whether there was any."""
        places = not_of_others(self._cluster, sink.id, places, commit=commit)
        return self._runner.run(end_forgotten(sink, places, commit=commit))

    def _others(self, committed: Mapping[TopicPartition, NotedOffset]) -> dict[str, Decision]:
        """What other sinks have decided last that have committed offsets of the group."""
        sinks = {found.note.sink for found in committed.values() if found.note} - {self._sink.id}
        last = {sink: self._runner.run(observed_decision(Sink(sink))) for sink in sorted(sinks)}
        return {sink: made.of_query or made for sink, made in last.items() if made is not None}


def is_planned_here(planned: Planned) -> bool:
    """Whether no earlier run has planned a batch, as far as eoslog's sources tell; others tell nothing."""
    ends = {canonical_text(end) for end in planned.by_name.values() if is_eoslog(end)}
    return not ends or bool(ends & planned_ends())


def _is_first(view: CheckpointView) -> bool:
    """Whether no batch is completed in the checkpoint yet."""
    return view.completed is None and view.batch.batch_id == 0


def _of_query(last: Decision | None, view: CheckpointView) -> Batch | None:
    """The batch that the checkpoint's query has decided last, as the sink's last decision tells."""
    return None if last is None else last.last_of(view.batch.query_id)


def fresh_of(view: CheckpointView, last: Decision | None) -> list[TopicPartition]:
    """Partitions that the planned batch is the first to read, if its query has made the sink's last
    decision: who has read them before is no successor."""
    made = None if last is None else last.of_query
    before = view.checkpoint.planned_if_kept(view.batch.batch_id - 1)
    if made is None or made.batch.query_id != view.batch.query_id or before is None:
        return []
    return [place for places in grown(before, view.planned).values() for place in places]


def plan_of(decision: Decision | None) -> Planned | None:
    """The plan of the last decided batch of a query. None: it is not recorded."""
    decision = None if decision is None else decision.of_query
    if decision is None or not decision.ends:
        return None
    return Planned.parse(decision.batch.batch_id, decision.ends)


def elsewhere(
    sink: Sink,
    last: Decision | None,
    committed: Mapping[TopicPartition, NotedOffset],
    options: SinkOptions,
) -> str | None:
    """Where the sink's last query has written, by its decision and by the notes of at_least_once, if it was
    not to this one's topic. None: it was, or it is not known."""
    last = None if last is None else last.of_query
    went = {found.note.topic for found in committed.values() if found.note and found.note.sink == sink.id}
    went |= {None if last is None or last.start is None else last.start.topic}
    others = sorted(topic for topic in went if topic is not None and topic != (options.topic or ""))
    said = [f"topic {topic}" if topic else "topics that its rows named" for topic in others]
    return " and ".join(said) or None


def unread_of(
    cluster: Cluster,
    view: CheckpointView,
    left: Planned | None,
    committed: Mapping[TopicPartition, NotedOffset],
) -> dict[TopicPartition, int | None]:
    """Partitions that nobody has read and that a new checkpoint begins behind the log's beginning, with that
    beginning. None: it is not known, as on another cluster than the sink's. Raises KafkaError."""
    if not _is_first(view):
        return {}
    noted = [tp for tp, found in committed.items() if found.note]
    begins = unread(left, noted, view.planned)
    here = view.planned.on_cluster(known_id(cluster)).topic_offsets() if begins else Offsets()
    asked = dict.fromkeys((tp for tp in begins if tp in here), EARLIEST)
    try:
        first = list_offsets(cluster, asked, committed=False) if asked else Offsets()
    except TopicAuthorizationFailed as error:  # the sink's user may lack the source's rights
        logger.debug("%s: their beginnings cannot be looked up: %s", sorted(asked), error)
        first = Offsets()
    return {tp: first.get(tp) for tp, at in begins.items() if at > first.get(tp, 0)}


def left_out_of(cluster: Cluster, view: CheckpointView, left: Planned | None) -> Offsets:
    """Partitions that are there, that the sink's last query has read, and that a new checkpoint does not
    read, with where that one stood in them. Raises KafkaError."""
    if not _is_first(view) or left is None:
        return {}
    here = left.on_cluster(known_id(cluster))
    stood = left_out(here, view.planned)
    if not stood:
        return {}
    there = cluster.metadata(sorted({topic for topic, _ in stood})).topics
    ids = here.left_ids() | here.topic_ids()
    same = {t for t, info in there.items() if info.topic_id == ids.get(t, info.topic_id)}
    return {tp: at for tp, at in stood.items() if tp[0] in same and tp[1] in there[tp[0]].leaders}


def cut_of(
    cluster: Cluster,
    view: CheckpointView,
    left: Planned | None,
    committed: Mapping[TopicPartition, NotedOffset],
) -> Offsets:
    """Partitions that a new checkpoint reads, and whose log was cut below where the sink's last batch has
    ended, or where a sink has committed; with the offset from which it differs. Raises KafkaError."""
    if not _is_first(view):
        return {}
    ended = {tp: found.offset for tp, found in committed.items() if found.note}
    epochs = {tp: found.epoch for tp, found in committed.items() if found.note and found.epoch >= 0}
    here = known_id(cluster)
    if left is not None:
        ended |= left.on_cluster(here).topic_offsets()
        epochs |= left.on_cluster(here).epochs()
    anew, read = remade(left, view.planned), view.planned.on_cluster(here).topic_offsets()
    epochs = {tp: epoch for tp, epoch in epochs.items() if tp in read and tp[0] not in anew}
    try:
        return cut_below(cluster, ended, epochs)
    except TopicAuthorizationFailed as error:  # the sink's user may lack the source's rights
        logger.debug("%s: their leader epochs cannot be looked up: %s", sorted(epochs), error)
        return {}


def successor(
    last: Decision | None, view: CheckpointView, group: str | None, sink: str, cluster: str | None
) -> str | None:
    """Which query has decided in a sink since the one of this checkpoint did, in its place. A group that is
    given says that it is in its place; in the group by default it is if it reads what this one reads."""
    by = None if last is None else last.successor_of(view.batch.query_id)
    if by is None or group != Sink(sink).offsets_group:
        return by
    plan, ends = plan_of(last), of_group(view.planned, group, sink, cluster).topic_offsets()
    return by if plan is not None and ends.keys() & plan.topic_offsets().keys() else None


def decided_since(checkpoint: Checkpoint, last: Decision | None, query: str, since: int) -> Batch | None:
    """What was decided in a sink that a query had before the batch `since`, and that the query does not know:
    by a copy of the checkpoint. None: nothing. Another query finds the mark of who has left it. Raises
    CheckpointUnreadable."""
    own = None if last is None or last.of_query is None else last.of_query.last_of(query)
    if own is None or own.batch_id < since:
        return None
    kept = checkpoint.planned_if_kept(own.batch_id)
    is_known = kept is not None and Batch(query, kept.batch_id, kept.digest).repeats(own)
    return None if is_known else own


def noted_left(view: CheckpointView, sink: str) -> Left:
    """Notes in the checkpoint that it leaves a sink for `sink`, "" for at_least_once: nobody else knows the
    word that the sink left gets. Raises CheckpointUnreadable."""
    query, number, _ = view.batch
    word = uuid.uuid4().hex[:16]
    NotedStarts.read(view.checkpoint).learn(view.checkpoint, word, number)
    return Left(word, sink, query, number, int(time.time()))


def ended_in(given: NotedSink, view: CheckpointView) -> Decision | None:
    """The batch with which a checkpoint leaves its sink, for a sink that has forgotten its decisions. None:
    the sink has got no batch before, or Spark has removed it. Raises CheckpointUnreadable."""
    query, number, _ = view.batch
    kept = None if given.gets_first(number) else view.checkpoint.planned_if_kept(number - 1)
    return None if kept is None else ended_with(Batch(query, number - 1, kept.digest), kept.ends)


def learn_accepted(view: CheckpointView, last: Decision | None, known: KnownStarts) -> None:
    """Note the start of a copy whose decision counts here, as is accepted: `eoslog checkpoint rebuild` has to
    know it before this start has come to its end."""
    made = None if last is None else last.of(view.batch.query_id)
    if made is not None and made.start is not None and is_anothers(last, view.batch, known):
        NotedStarts.read(view.checkpoint).learn(view.checkpoint, made.start.word, view.batch.batch_id)


def check_left_sink(
    options: SinkOptions, runner: Runner, view: CheckpointView, given: NotedSink, last: Decision | None
) -> Completed:
    """Compare what a checkpoint has completed with what the sink that it leaves has decided, `last`, and
    written: if that one has decided nothing, its first batch may be a copy's, as in _check_first(). Raises
    CommitFault."""
    cluster, old, accepted = shared_cluster(options.client), str(given.sink), options.accepted
    known = completed_in(cluster, view, given.since, last, old)
    if last is None and given.gets_first(view.batch.batch_id):
        unseen, rested = is_unseen(view.checkpoint, ())
        if unseen and (rested or runner.run(has_forgotten(Sink(old)))):
            check_first(old, accepted)
        behind = behind_the_first(
            cluster, view.checkpoint, old, known_starts(view.checkpoint, options).topics
        )
        known = known._replace(rows=known.rows._replace(undecided=behind))
    check_completed(old, known, _of_query(last, view), accepted, "0" if last is None else last.word)
    return known


def leave_for_none(options: SinkOptions, runner: Runner, view: CheckpointView) -> None:
    """Leave the checkpoint's former sink, and commit its last decision's transactions: at_least_once has no
    sink with decisions. Raises CommitFault, WrongCluster, CheckpointUnreadable, StartsElsewhere."""
    check_restored(view.checkpoint)
    if view.completed is None and view.batch.batch_id == 0:
        _check_plain_start(options, view, runner)
    given = NotedSink.read(view.checkpoint)
    if given is None:
        NotedSink(None, None, view.batch.batch_id).write(view.checkpoint)
    if given is None or given.sink is None:
        return
    now = cluster_id(shared_cluster(options.client))
    if not check_sink_cluster(given.cluster, now, given.sink, options.accepted):
        check_noted_place(given.sink, given.decisions, options.decision_topic)
        last = runner.run(stable_decision(Sink(given.sink)))
        starts = known_starts(view.checkpoint, options)
        check_start(Sink(given.sink), last, view.batch, starts)
        learn_accepted(view, last, starts)
        if check_left_sink(options, runner, view, given, last).rows.lacks:
            forget_lacking(shared_cluster(options.client), view.checkpoint)
        runner.run(give_up(Sink(given.sink), options.accepted))
        left, ended = noted_left(view, ""), ended_in(given, view)
        runner.run(leave(Sink(given.sink), view.batch, view.completed, left, ended))
        unnumber(view)
    else:
        note_moved(view.checkpoint, options.topic or "")
    former = given.left_for(None, now, view.batch.batch_id)
    NotedSink(None, now, view.batch.batch_id, former=former).write(view.checkpoint)


def _check_plain_start(options: SinkOptions, view: CheckpointView, runner: Runner) -> None:
    """Compare the planned batch with the last decision of the sink's name, and with the group. Raises
    CommitFault, StartsElsewhere."""
    cluster, name = shared_cluster(options.client), options.transactional_id
    sink, group = Sink(name or view.batch.query_id), options.group_id
    wanted, last = view.planned.topic_offsets(), None
    if name is not None:
        found = runner.run(
            observed(sink)
        )  # the next one may be on its way, which hides it: that one is ended
        last = runner.run(taken_over(sink)) if isinstance(found, Refused) else found
        if group is None:  # exactly_once has committed there by default
            group = sink.offsets_group
            wanted = of_group(view.planned, group, name, known_id(cluster)).topic_offsets()
    committed = settled_offsets(cluster, runner, sink, group, wanted)
    story = StartFacts(
        sink=sink.id,
        batch=view.batch,
        ends=view.planned.topic_offsets(),
        begins=view.planned.each_beginning(),
        completed=None,
        decided=None if last is None else (last.of_query or last).batch,
        ended=None,
        group=group,
        committed=committed,
        taken=view.planned.taken(),
        accepted=options.accepted,
        rows=rows_found(cluster, view, None, last),
        left=plan_of(last),
        unread=unread_of(cluster, view, plan_of(last), committed),
        remade=remade(plan_of(last), view.planned),
        cut=cut_of(cluster, view, plan_of(last), committed),
        word="" if last is None else last.word,
        went_to=elsewhere(sink, last, committed, options),
    )
    for warning in check_plain_start(story):
        logger.warning(warning)
    _finish_others(story, runner, view, "")


def _finish_others(story: StartFacts, runner: Runner, view: CheckpointView, new: str) -> None:
    """Commit the decided transactions of other sinks at whose offsets the query begins, and note that those
    are left for the sink `new` in whose place it begins. Raises CommitFault, CheckpointUnreadable.

    The query does not write the rows before these offsets, so they would be lost if the other driver had died
    after its decision.
    """
    notes = [found.note for found in story.committed.values() if found.note]
    plain = {note.sink for note in notes if not note.decided}  # at_least_once, which decides nothing
    for sink in sorted(({note.sink for note in notes} | {one.sink for one in story.taken}) - plain):
        if sink != story.sink:
            runner.run(give_up(Sink(sink), story.accepted))
            replaced = story.replaces(sink) in story.accepted
            runner.run(fence(Sink(sink), noted_left(view, new) if replaced else None))


def cluster_id(cluster: Cluster) -> str | None:
    """The id of the cluster that answers. None: it does not report one. Raises BrokerUnreachable."""
    cluster.meet()
    return retrying(cluster, "Metadata", lambda: cluster.metadata([]).cluster_id)


def known_id(cluster: Cluster) -> str | None:
    """The id of the cluster, from memory if this process has seen it."""
    return cluster.cluster_id or cluster_id(cluster)


def of_group(planned: Planned, group: str | None, sink: str, cluster: str | None) -> Planned:
    """The sources whose offsets go to a group: all of them, or, in the group that a sink has by default,
    those whose offsets name the sink's cluster, `cluster`."""
    return planned.on_cluster(cluster) if group == Sink(sink).offsets_group else planned


def source_offsets(group: str, planned: Planned, note: Note) -> SourceOffsets:
    """The end offsets of a batch for the group, each with the note of who has committed it."""
    apart = planned.apart()
    noted = {
        place: (end, note._replace(apart=tuple(apart.get(place, {}).items())).text())
        for place, end in planned.topic_offsets().items()
    }
    return SourceOffsets(group, noted, planned.epochs())


def committed_offsets(
    cluster: Cluster, group: str | None, wanted: Offsets, *, stable: bool = True
) -> dict[tuple[str, int], NotedOffset]:
    """The offsets that the group has. `stable` False: without waiting for offsets that a dead driver has left
    pending, which are ended when the sink is acquired."""
    if group is None or not wanted:
        return {}
    found = group_offsets.fetch_with_epochs(cluster, group, sorted(wanted), require_stable=stable)
    return {tp: NotedOffset(at, read_note(text), epoch) for tp, (at, text, epoch) in found.items() if at >= 0}


def settled_offsets(
    cluster: Cluster, runner: Runner, sink: Sink, group: str | None, wanted: Offsets
) -> dict[tuple[str, int], NotedOffset]:
    """The offsets that the group has, when none are pending. Raises MarkersMissing if the sink's own
    transaction holds them, which nobody comes back to."""
    try:
        return committed_offsets(cluster, group, wanted)
    except RetriesExhausted:
        runner.run(check_ended(sink))
        raise
