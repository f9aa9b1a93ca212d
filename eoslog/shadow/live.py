"""A shadow takes over while it runs, and the running query with it.

All that both have written is compared first, while nobody waits. Then the shadow is asked to stand still
after each batch (standstill.py), and what has come since is compared. Once it stands where the running query
has decided last, and has written the same, it takes over as one that was stopped does (take_over.py). It goes
on in that query's place.

Until then the running query goes on. Its sink is acquired when both stand at the same decision. It may decide
once more just before that. Then it is fenced, and the shadow's next batch ends where it has ended. Before the
decision the shadow's own sink is acquired, too: a shadow that does not wait can decide nothing more there, so
no batch comes between the one that was looked at and the decision.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eoslog.audit.identity import Identity
from eoslog.checkpoint import carry_out
from eoslog.checkpoint.standing import Standing, standing
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.commands.output import shown
from eoslog.connector.checkpoint import standstill
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.checkpoint.standstill import TAKE_OVER, Standstill, TakeOverWish
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.leave_sink import fence, taken_over
from eoslog.connector.commit.observe import observed_decision
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import Offsets, ShadowCut
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.sink.shadow_sink import note_taken
from eoslog.shadow.compare import NoShadow, Ranges, ShadowComparison, Step, compare, cut_of, steps, together
from eoslog.shadow.take_over import (
    MOST_LEFT,
    NoTakeOver,
    TakeOverPoint,
    addition,
    check_equal,
    check_settled,
    check_steps,
    check_topic,
    decide_take_over,
    left_rows,
    see_report,
    stands_at,
    taken_place,
)

WAIT_SECONDS = 60.0
"""How long the shadow may take to come to where it can take over."""
PATIENCE = 3
"""Standstills until the running query is fenced although the shadow is behind it."""
_SETTLED = 5
"""In its last steps one version may have written rows that the other one writes next."""
_LOOK_SECONDS = 0.005


class TakenPlace(NamedTuple):
    """A shadow has taken over. `sink`, `group`: the running query's names, in which it goes on; `batch`: its
    last one as a shadow; `decision`: the running query's, at which that ends; `rows`: how many were added."""

    sink: str
    group: str
    batch: int
    decision: int
    rows: int


def take_over_live(
    checkpoint: str, options: Mapping[str, str], *, key: bool = False, wait_seconds: float = WAIT_SECONDS
) -> TakenPlace:
    """Let the shadow with this checkpoint take the running query's place while both run. It goes on there;
    the running query stops at its next batch.

    `options`: those of the running query's writer. `key`: rows with the same key are equal. `wait_seconds`:
    how long to wait until both stand at the same batch. Raises EoslogError (NoTakeOver and others: catch this
    base), or an Exception that has the name of Kafka's error code.
    """
    given = sink_options(options, stream=True)
    how = How(Identity(key=key, content=not key), wait_seconds=wait_seconds)
    return LiveTakeOver(shared_cluster(given.client), checkpoint, given.decision_topic, how).carry_out()


@dataclass(frozen=True)
class How:
    """How rows are compared, and from which batch on; where they are kept meanwhile; how long to wait for
    the shadow."""

    identity: Identity
    from_batch: int | None = None
    temp_dir: str | None = None
    wait_seconds: float = WAIT_SECONDS


@dataclass(frozen=True)
class _Compared:
    """What was compared, up to a batch of the shadow; `own`: where its rows end that were."""

    batch: int
    own: Offsets
    steps: list[Step]
    found: ShadowComparison


class LiveTakeOver:
    """One take-over. `decisions`: the topic of the running query's decisions."""

    def __init__(self, cluster: Cluster, location: str, decisions: str, how: How) -> None:
        self._cluster, self._how, self._decisions = cluster, how, decisions
        self._checkpoint = Checkpoint.at(location)
        self._runner = Runner(cluster, OWN_TIMEOUT_MS, decisions=decisions)
        self._wish = TakeOverWish(uuid.uuid4().hex)
        self._looks, self._last_look, self._why = 0, "", "the shadow has decided no batch meanwhile"

    def carry_out(self) -> TakenPlace:
        """Take over. Raises NoTakeOver, NoShadow, CommitFault, KafkaError, EoslogError."""
        shadow = standing(self._cluster, self._checkpoint)
        if (done := self._if_taken(shadow)) is not None:
            return done
        if shadow.sink is None:
            raise NoTakeOver(
                "the shadow has no sink that keeps decisions, so it cannot take over while it runs. Nothing "
                "was changed. Run it with processing.guarantee=exactly_once, or stop it first"
            )
        compared = self._compared(*self._batches())
        check_steps(compared.steps)
        _check_alike(compared)
        self._wish.write(self._checkpoint)
        try:
            return self._until_taken(shadow, compared)
        finally:
            self._withdraw()

    def _if_taken(self, shadow: Standing) -> TakenPlace | None:
        """Note that the shadow has taken over, if it has: an earlier command may have died before that."""
        if shadow.newest is None:
            raise NoShadow(f"checkpoint {self._checkpoint.location} has no batch yet: wait for one")
        place = taken_place(self._cluster, shadow, self._decisions)
        if place is not None:
            note_taken(self._checkpoint, place.becomes(shadow.cluster_id), place.seen)
            return TakenPlace(place.cut.sink, place.cut.group, place.batch.batch_id, place.cut.sequence, 0)
        cut_of(shadow.newest)
        return None

    # -- comparison ----------------------------------------------------------------------------------

    def _batches(self) -> tuple[list[Planned], Offsets | None]:
        """The batches that can be compared while the shadow runs, without gaps; and where its rows end, if it
        has planned nothing after the last one. Raises NoShadow, CheckpointUnreadable."""
        checkpoint, first = self._checkpoint, (self._how.from_batch or 1) - 1
        while True:
            numbers, completed = checkpoint.batches("offsets"), checkpoint.newest_completed()
            if completed is None:
                raise NoShadow(f"checkpoint {checkpoint.location} has no batch to compare yet: wait for one")
            wanted = [number for number in numbers if first <= number <= completed + 1]
            kept = [one for one in map(checkpoint.planned_if_kept, wanted) if one is not None]
            if not kept or kept[-1].batch_id > completed:
                return kept, None
            ends = self._ends(cut_of(kept[-1]))
            if checkpoint.batches("offsets")[-1] == kept[-1].batch_id:  # its rows are the last ones
                return kept, ends

    def _ends(self, cut: ShadowCut) -> Offsets:
        return list_offsets(self._cluster, dict.fromkeys(cut.own, LATEST), committed=True)

    def _compared(
        self, batches: list[Planned], own_now: Offsets | None, before: _Compared | None = None
    ) -> _Compared:
        """Compare. `before`: what was compared up to the first of these batches."""
        new = steps(batches, own_now, goes_on=before is not None) if batches else []
        if before is not None and not new:
            return before
        if before is not None:  # a batch without rows is planned with the cut of the one before
            new = [replace(step, own=_after(before.own, step.own)) for step in new]
        if not new:
            raise NoShadow("the shadow has done no batch yet that can be compared: wait for one")
        known = [] if before is None else before.steps
        same = bool(known) and known[-1].decision == new[0].decision
        old = [replace(step, written={}, own={}) for step in known]
        read = [*old[:-1], replace(new[0], first=old[-1].first, after=old[-1].after), *new[1:]] if same else [
            *old, *new
        ]  # fmt: skip
        with (
            tempfile.TemporaryDirectory(prefix="eoslog-shadow-", dir=self._how.temp_dir) as folder,
            shown(quiet=before is not None) as watch,
        ):
            found = compare(
                self._cluster, read, self._how.identity, Path(folder), MOST_LEFT, watch,
                None if before is None else before.found,
            )  # fmt: skip
        if len(found.differing) < found.differs.sum():
            raise NoTakeOver(
                f"the versions differ in more than {MOST_LEFT:,} rows of one step. Nothing was changed. See "
                "eoslog shadow report"
            )
        all_steps = [*known[:-1], together(known[-1], new[0]), *new[1:]] if same else [*known, *new]
        last = batches[-1].batch_id - (own_now is None)
        own = {place: end for step in new for place, (_, end) in step.own.items()}
        return _Compared(last, own, all_steps, found)

    # -- standstills ---------------------------------------------------------------------------------

    def _until_taken(self, shadow: Standing, compared: _Compared) -> TakenPlace:
        ends = time.monotonic() + self._how.wait_seconds
        while (stands := self._stands(ends)) is not None:
            self._looks += 1
            compared = self._up_to(stands.batch, compared)
            _check_alike(compared)
            if (done := self._tried(shadow, stands, compared)) is not None:
                return done
            self._wish = self._wish._replace(until=stands.batch)
            self._wish.write(self._checkpoint)
        raise NoTakeOver(
            f"the shadow did not take over within {self._how.wait_seconds:g} s: {self._why}. It goes on as a "
            "shadow. Let both run, with rows to read, and give the command again; or stop the running query, "
            "then the shadow"
        )

    def _stands(self, ends: float) -> Standstill | None:
        """Wait until the shadow stands still once more. None: it takes too long."""
        while time.monotonic() < ends:
            found = Standstill.read(self._checkpoint)
            if found is not None and found.word == self._wish.word and found.look != self._last_look:
                self._last_look = found.look
                return found
            self._check_wanted()
            time.sleep(_LOOK_SECONDS)
        return None

    def _check_wanted(self) -> None:
        now = TakeOverWish.read(self._checkpoint)
        if now is None or now.word != self._wish.word:
            raise NoTakeOver(
                "the shadow has not waited for this command, or another command wants the same. This one has "
                "changed nothing since. Give the command again, once"
            )

    def _up_to(self, batch: int, before: _Compared) -> _Compared:
        """Compare what the shadow has written until it stands still after this batch."""
        kept = [self._checkpoint.planned(number) for number in range(before.batch, batch + 1)]
        return self._compared(kept, self._ends(cut_of(kept[-1])), before)

    def _tried(self, shadow: Standing, stands: Standstill, compared: _Compared) -> TakenPlace | None:
        """Take over, if the shadow stands where the running query does. None: it does not."""
        planned = self._checkpoint.planned(stands.batch)
        cut, seen = cut_of(planned), self._seen(planned)
        if seen is None:
            self._why = "the running query was deciding each time"
            return None
        batch = Batch(shadow.query_id, planned.batch_id, planned.digest)
        place = TakeOverPoint(batch, planned, cut, seen, self._decisions)
        check_topic(place, compared.steps)
        _check_state(place, stands)
        if stands_at(self._cluster, place, seen):
            return self._if_equal(shadow, place, compared)
        behind = seen.sequence - cut.sequence
        self._why = f"it was {behind} batches behind the running query when it stood still last"
        last = compared.steps[-1]
        if self._looks >= PATIENCE and behind <= max(1, last.decision - (last.after or 0)):
            self._await_next(Sink(cut.sink), seen)
            self._runner.run(fence(Sink(cut.sink)))  # the shadow's next batch ends where that query does
        return None

    def _seen(self, planned: Planned) -> Decision | None:
        return self._runner.run(observed_decision(Sink(cut_of(planned).sink)))

    def _await_next(self, sink: Sink, seen: Decision) -> None:
        """Wait a while until the running query has decided once more: readers have new rows then, and nothing
        that it has done since is lost."""
        ends = time.monotonic() + standstill.STANDS_SECONDS / 4
        while time.monotonic() < ends and self._runner.run(observed_decision(sink)) in (seen, None):
            time.sleep(_LOOK_SECONDS)

    def _if_equal(self, shadow: Standing, place: TakeOverPoint, compared: _Compared) -> TakenPlace | None:
        """Take over if both have written the same, but for what the shadow alone has written last."""
        try:
            check_settled(self._cluster, place.cut)
            check_equal(compared.steps, compared.found, by_key=self._how.identity.key)
        except NoTakeOver as not_yet:
            self._why = str(not_yet)
            return None
        rows = left_rows(self._cluster, compared.found, place.cut)
        added = addition(self._cluster, shadow, place, rows)
        sink = Sink(place.cut.sink)
        if self._seen(place.planned) != place.seen:
            return None
        if self._runner.run(taken_over(sink)) != place.seen:  # it has decided once more
            self._runner.run(fence(sink))
            return None
        self._begin(shadow, place)
        decision = decide_take_over(self._cluster, shadow, place, added)
        note_taken(self._checkpoint, place.becomes(shadow.cluster_id), decision)
        count = 0 if rows is None else len(rows.rows)
        return TakenPlace(sink.id, place.cut.group, place.batch.batch_id, place.cut.sequence, count)

    def _begin(self, shadow: Standing, place: TakeOverPoint) -> None:
        """Make sure that no batch of the shadow comes after this one, and that a start finds out. Raises
        NoTakeOver, CommitFault, CheckpointUnreadable."""
        assert shadow.sink is not None and shadow.note is not None  # otherwise there was an error
        self._check_wanted()
        self._checkpoint.sync_completed()
        self._checkpoint.sync_planned(place.batch.batch_id)
        self._wish = self._wish._replace(becomes=place.becomes(shadow.cluster_id))
        self._wish.write(self._checkpoint)
        own = Runner(self._cluster, OWN_TIMEOUT_MS, decisions=shadow.note.decisions)
        last = own.run(taken_over(shadow.sink))
        decided = None if last is None else last.last_of(place.batch.query_id)
        if decided is None or not decided.repeats(place.batch):
            self._checkpoint.forget(TAKE_OVER)
            raise NoTakeOver(
                f"the shadow has decided {decided or 'nothing'} in its own sink, and {place.batch} was "
                "looked at: it has not waited. Both queries stop; start them again"
            )

    def _withdraw(self) -> None:
        """Let the shadow go on, unless it is not known whether it has taken over: its start finds out."""
        now = TakeOverWish.read(self._checkpoint)
        if now is not None and now.word == self._wish.word and now.becomes is None:
            self._checkpoint.forget(TAKE_OVER)


def _after(compared: Offsets, ranges: Ranges) -> Ranges:
    """The ranges from where the comparison has ended."""
    return {place: (min(compared.get(place, start), end), end) for place, (start, end) in ranges.items()}


def _check_alike(compared: _Compared) -> None:
    """Raise NoTakeOver if the versions differ in steps whose rows both have written."""
    differs = compared.found.differs[:-_SETTLED]
    count = int(differs.sum())
    if count:
        first = compared.steps[int(np.flatnonzero(differs)[0])].first
        raise NoTakeOver(
            f"{count:,} rows were written by one version alone, in batch {first} or later: the "
            f"versions differ. Nothing was changed. {see_report(compared.steps, differs)}"
        )


def _check_state(place: TakeOverPoint, stands: Standstill) -> None:
    """Raise NoTakeOver if the running query saves its state, and the shadow would not go on with that."""
    topic = carry_out.state_topic_of(place.seen)
    if topic is not None and stands.state != topic:
        raise NoTakeOver(
            f"the running query saves its state in {topic}, and the shadow does not. Nothing was changed. "
            f"Start the shadow with state.topic={topic}; or let it take over when it is stopped"
        )
