"""The I/O around classic groups: requests in, records out, answers when durable, timers.

For each event: the rules decide, the record (if any) is appended, the group is replaced, and the
answers go out once the log is durable. An append that fails changes nothing and fails the request.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.broker.coordinator.groups import classic_group as classic_group
from eoslog.broker.coordinator.groups.classic_group_state import (
    ANSWER_TO,
    Answer,
    ClassicGroup,
    ClassicGroupSettings,
    Event,
    Request,
    Tick,
)
from eoslog.broker.coordinator.groups.group_journal import GroupJournal
from eoslog.broker.coordinator.groups.group_records import encode_group
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock

RETRY_S = 5.0
"""Seconds after a failed write until a group's deadlines are checked again."""

Answers = tuple[tuple[int, Answer], ...]

logger = logging.getLogger(__name__)


def settings_of(config: BrokerConfig) -> ClassicGroupSettings:
    """Return the part of the broker's options that the rules of groups need."""
    return ClassicGroupSettings(
        group_min_session_timeout_ms=config.groups.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.groups.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.groups.group_initial_rebalance_delay_ms,
        group_max_size=config.groups.group_max_size,
    )


class _Waiting(NamedTuple):
    """A request that has no answer yet, and the kind of answer it takes."""

    future: asyncio.Future[Any]
    kind: type[Answer]


class GroupMembers:
    """All classic groups that have, had or wait for members."""

    def __init__(self, journal: GroupJournal, clock: Clock, settings: ClassicGroupSettings) -> None:
        self._journal = journal
        self._clock = clock
        self._settings = settings
        self._groups: dict[str, ClassicGroup] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._tickets = itertools.count()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._closed = False

    def get(self, group_id: str) -> ClassicGroup | None:
        """Return a group as it is now."""
        return self._groups.get(group_id)

    def all(self) -> Iterable[ClassicGroup]:
        """Return every group."""
        return self._groups.values()

    def submit(self, group_id: str, event: Request) -> asyncio.Future[Any]:
        """Apply a request now. The future gets its answer, even if that is an error."""
        ticket = next(self._tickets)
        waiting = _Waiting(asyncio.get_running_loop().create_future(), ANSWER_TO[type(event)])
        self._waiting[ticket] = waiting
        if self._closed:  # a request may still come before its connection is closed
            self._refuse([ticket], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return waiting.future
        try:
            self._step(group_id, event, ticket)
        except KafkaError as error:
            self._refuse([ticket], error.code)
        return waiting.future

    def touch(self, group_id: str, member_id: str) -> None:
        """Count a commit of a member as its heartbeat."""
        group = self._groups.get(group_id)
        if group is not None:
            self._keep(classic_group.touch(group, member_id, self._now()))

    def forget(self, group_id: str) -> None:
        """Remove an empty group whose tombstone has been written."""
        self._groups.pop(group_id, None)
        self._arm(group_id, None)

    # Reading back

    def replay(self, group_id: str, group: ClassicGroup | None) -> None:
        """Set a group as it was read from the log; None removes it."""
        self._groups.pop(group_id, None)
        if group is not None:
            self._groups[group_id] = group

    def unload(self, partition: Partition) -> None:
        """Forget the groups that a partition keeps. Waiting requests are answered NOT_COORDINATOR."""
        for group_id in [name for name in self._groups if self._journal.keeps(partition, name)]:
            members = self._groups[group_id].members.values()
            parked = [ticket for m in members for ticket in (m.join_ticket, m.sync_ticket)]
            self.forget(group_id)
            self._refuse([ticket for ticket in parked if ticket is not None], ErrorCode.NOT_COORDINATOR)

    def start(self, partition: Partition | None = None) -> None:
        """Start the sessions of the members read back, of all partitions or one. Call on the event loop."""
        for group in list(self._groups.values()):
            if partition is not None and not self._journal.keeps(partition, group.group_id):
                continue
            self._keep(classic_group.resume(group, self._now()))

    def close(self) -> None:
        """Stop all timers, refuse parked requests, and refuse all later ones."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._refuse(list(self._waiting), ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # One step

    def _step(self, group_id: str, event: Event, ticket: int) -> None:
        partition = self._journal.partition(group_id)  # Before reading the clock: this may create the topic.
        group = self._groups.get(group_id) or ClassicGroup(group_id)
        outcome = classic_group.step(group, event, ticket, self._now(), self._settings)
        if outcome.group.state is not group.state:
            outcome.group.state_since = self._clock.now_ms()
        if outcome.persist:
            self._journal.append(partition, [encode_group(outcome.group, outcome.group.state_since)])
        if outcome.group.generation != group.generation:
            text = "group %s: generation %d has %d members"
            facts = (group_id, outcome.group.generation, len(outcome.group.members))
            logger.info(text, *facts, extra={"group": group_id})
        self._keep(outcome.group)
        self._answer(partition, outcome.answers)

    def _keep(self, group: ClassicGroup) -> None:
        if group.vacant:
            self._groups.pop(group.group_id, None)
        else:
            self._groups[group.group_id] = group
        self._arm(group.group_id, group.next_deadline())

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # Timers

    def _arm(self, group_id: str, deadline: int | None) -> None:
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()
        if deadline is not None:
            # One more millisecond, since `_now` is rounded down.
            delay = max(deadline - self._clock.monotonic() * 1000, 0) / 1000 + 0.001
            self._timers[group_id] = asyncio.get_running_loop().call_later(delay, self._tick, group_id)

    def _tick(self, group_id: str) -> None:
        try:
            self._step(group_id, Tick(), classic_group.NO_TICKET)
        except KafkaError as error:
            logger.error("group %s: its state cannot be written, trying again: %s", group_id, error)
            loop = asyncio.get_running_loop()
            self._timers[group_id] = loop.call_later(RETRY_S, self._tick, group_id)

    # Answers

    def _answer(self, partition: Partition, answers: Answers) -> None:
        if not answers:
            return
        end = partition.log_end_offset
        if partition.high_watermark >= end:
            self._resolve(answers)
            return
        task = asyncio.get_running_loop().create_task(self._answer_when_durable(partition, end, answers))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    async def _answer_when_durable(self, partition: Partition, end: int, answers: Answers) -> None:
        try:
            await self._journal.durable(partition, end)
        except KafkaError as error:
            self._refuse([ticket for ticket, _ in answers], error.code)
        else:
            self._resolve(answers)

    def _resolve(self, answers: Answers) -> None:
        for ticket, answer in answers:
            waiting = self._waiting.pop(ticket, None)
            # A closed connection cancels the requests it waited for, and `close` answers them all.
            if waiting is not None and not waiting.future.done():
                waiting.future.set_result(answer)

    def _refuse(self, tickets: Iterable[int], error: ErrorCode) -> None:
        self._resolve(tuple((t, self._waiting[t].kind(error=error)) for t in tickets if t in self._waiting))
