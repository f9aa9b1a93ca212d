"""Runs `eoslog rehearse` as a test's program would; brokers that break one promise each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eoslog.broker.coordinator.groups.committed_offsets import OffsetStore
from eoslog.broker.coordinator.groups.group_offsets import GroupOffsets
from eoslog.broker.coordinator.transactions import transaction, transaction_coordinator, transaction_state
from eoslog.broker.coordinator.transactions.transaction_changes import Changes, MarkerWriter
from eoslog.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from eoslog.broker.log.partition import Partition
from eoslog.broker.log.reads import PartitionReads
from eoslog.broker.rules import producer_state
from eoslog.broker.rules.producer_state import ProducerStates, Written
from eoslog.cli import main
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.testing.disk import FaultyFile, FaultyFileSystem
from tests.broker.coordinator.transactions import test_transaction_crash as coordinators
from tests.crash import test_crash_judge as judged
from tests.docs.reader import steps


def rehearse(bootstrap: str, *more: str) -> Result:
    return CliRunner().invoke(main, ["rehearse", "--bootstrap-server", bootstrap, *more])


def printed_on(broker: str, command: str) -> list[str]:
    """All that the command prints on a kind of broker, line by line; the page shows a part of it."""
    ((typed, wanted),) = steps((Path(__file__).parent / "printed" / f"{broker}.txt").read_text())
    assert typed == command
    return wanted


def document(bootstrap: str, *more: str) -> dict[str, Any]:
    """The JSON document, with the exit status as `status`."""
    result = rehearse(bootstrap, "--json", *more)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    found: dict[str, Any] = json.loads(result.stdout)
    return found | {"status": result.exit_code}


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    """Row -> verdict."""
    return {row["row"]: row["verdict"] for row in found["rows"]}


def not_holding(found: dict[str, Any]) -> dict[str, str]:
    """Row -> what was seen, of rows that fail or are unknown."""
    return {row["row"]: row["what"] for row in found["rows"] if row["verdict"] in ("fails", "unknown")}


def names_of(bootstrap: str) -> set[str]:
    """Topics and groups of the cluster."""
    found: set[str] = set()
    for kind, column in (("topics", "topic"), ("groups", "group")):
        result = CliRunner().invoke(main, [kind, "list", "--bootstrap-server", bootstrap, "--json"])
        assert result.exit_code == 0, result.output
        found |= {row[column] for row in json.loads(result.stdout)}
    return found


# -- broken brokers ------------------------------------------------------------------------------
# Brokers that break one promise each, and the row of `eoslog rehearse` that has to name it.
#
# Those of the crash judge (test_crash_judge.py) that are wrong while they run are among them. Others
# there are wrong only after a crash (BROKEN_IN_CRASHES), or show only in what is under way then
# (BROKEN_UNDER_LOAD, with those of test_transaction_crash.py).

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]

BROKEN_IN_CRASHES = [
    judged.only_the_last_batch_is_known_after_a_restart,
    judged.no_batch_is_known_after_a_restart,
]
"""Brokers that are broken when they come back: the row "a crash of brokers" has to fail."""


def files_are_not_synced(patch: Patch) -> None:
    """The crash judge's no_fdatasync, on the disk of the broker that is embedded."""
    sync = FaultyFile.sync

    def broken(self: FaultyFile) -> None:
        if not self.path.endswith(".log"):
            sync(self)

    patch.setattr(FaultyFile, "sync", broken)


def directories_are_not_synced(patch: Patch) -> None:
    """Its no_directory_sync."""
    patch.setattr(FaultyFileSystem, "sync_dir", lambda self, path: self.meet("sync", path))


def coordinator(kind: type[Changes]) -> Break:
    """A broker with one of the broken coordinators of test_transaction_crash.py."""

    def broken(patch: Patch) -> None:
        patch.setattr(transaction_coordinator, "Changes", kind)

    broken.__name__ = kind.__name__
    return broken


ANY, STATES, ROWS = "", "__transaction_state", "/eoslog-rehearsal"
BROKEN_UNDER_LOAD: list[tuple[Break, str]] = [
    (files_are_not_synced, ANY),
    (directories_are_not_synced, ANY),
    (judged.acknowledges_before_it_is_durable, ANY),
    (judged.prepare_is_not_written, ANY),
    (judged.prepare_is_not_waited_for, STATES),
    (judged.a_new_epoch_is_not_waited_for, ANY),
    (judged.decisions_stay_unfinished, ANY),
    (judged.the_torn_tail_is_not_cut, ANY),
    (judged.no_recovery_scan, ANY),
    (coordinator(coordinators.MarksBeforeDecisionIsDurable), STATES),
    (coordinator(coordinators.JoinsWithoutWaiting), STATES),
    (coordinator(coordinators.CompletesBeforeMarkers), ROWS),
    (coordinator(coordinators.DoesNotWaitForMarkers), ROWS),
    (coordinator(coordinators.LeavesDecisionsUnfinished), ANY),
    (coordinator(coordinators.CompletesWithoutMarkersAtStart), ANY),
]
"""Brokers of which some crash under load must be named, and the files whose syncs are slow then."""


def aborted_rows_are_shown(patch: Patch) -> None:
    read = PartitionReads.read

    def broken(self: Any, *arguments: Any, **more: Any) -> Any:
        found = read(self, *arguments, **more)
        return found._replace(aborted=found.aborted and [])

    patch.setattr(PartitionReads, "read", broken)


def aborts_are_commits(patch: Patch) -> None:
    mark = MarkerWriter.mark_one

    async def broken(
        self: Any, partition: Any, pid: int, epoch: int, commit: bool, *more: Any, **named: Any
    ) -> None:
        await mark(self, partition, pid, epoch, True, *more, **named)

    patch.setattr(MarkerWriter, "mark_one", broken)


def abort_markers_are_forgotten(patch: Patch) -> None:
    mark = MarkerWriter.mark_one

    async def broken(
        self: Any, partition: Any, pid: int, epoch: int, commit: bool, *a: Any, **named: Any
    ) -> None:
        if commit:
            await mark(self, partition, pid, epoch, commit, *a, **named)

    patch.setattr(MarkerWriter, "mark_one", broken)


def the_stable_offset_is_told_to_be_the_end(patch: Patch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def no_marker_is_written(patch: Patch) -> None:
    async def broken(self: Any, *_: Any, **__: Any) -> None:
        return None

    patch.setattr(MarkerWriter, "mark_one", broken)


def the_stable_offset_stands_still(patch: Patch) -> None:
    patch.setattr(ProducerStates, "last_stable_offset", lambda self, high_watermark: 0)


def every_third_batch_is_lost(patch: Patch) -> None:
    check = ProducerStates.check
    batches = 0

    def broken(self: Any, header: Any, **more: Any) -> Any:
        nonlocal batches
        batches += not more.get("coordinator", False)
        if batches % 3 == 0 and not more.get("coordinator", False):
            return Written(header.base_sequence, header.last_sequence, 0, 0)  # taken for a retry
        return check(self, header, **more)

    patch.setattr(ProducerStates, "check", broken)


def offsets_are_forgotten(patch: Patch) -> None:
    patch.setattr(OffsetStore, "get", lambda self, group, place: None)


def metadata_is_forgotten(patch: Patch) -> None:
    get = OffsetStore.get

    def broken(self: Any, group: str, place: Any) -> Any:
        found = get(self, group, place)
        return found and replace(found, metadata="")

    patch.setattr(OffsetStore, "get", broken)


def pending_offsets_are_not_told(patch: Patch) -> None:
    patch.setattr(OffsetStore, "unstable", lambda self, group, place: False)


def offsets_stay_pending(patch: Patch) -> None:
    patch.setattr(OffsetStore, "replay_marker", lambda self, producer_id, commit: None)


def aborted_offsets_count(patch: Patch) -> None:
    replay = OffsetStore.replay_marker
    patch.setattr(OffsetStore, "replay_marker", lambda self, pid, commit: replay(self, pid, True))


def offsets_of_fenced_producers_count(patch: Patch) -> None:
    patch.setattr(GroupOffsets, "_join_transaction", lambda self, txn, who: None)


def whoever_comes_gets_the_same_epoch(patch: Patch) -> None:

    def broken(metadata: Any, new_producer_id: int) -> ProducerIdentity:
        return (
            metadata.holder
            if metadata.holder.epoch >= 0
            else transaction_state.next_holder(metadata, new_producer_id)
        )

    patch.setattr(transaction, "next_holder", broken)


def the_dead_ones_transactions_go_on(patch: Patch) -> None:
    """InitProducerId gives a new epoch, and the open transaction stays open."""
    init = transaction.init_producer_id

    def broken(metadata: Any, request: Any, now_ms: int, **more: Any) -> Any:
        return init(metadata, replace(request, keep_prepared=True), now_ms, **more)

    patch.setattr("eoslog.broker.coordinator.transactions.transaction.init_producer_id", broken)


def fenced_epochs_may_end(patch: Patch) -> None:
    end = TransactionCoordinator._end

    def broken(self: Any, producer: Any, *more: Any) -> Any:
        known = self._entries.get(producer.transactional_id)
        holder = known.metadata.holder if known and known.metadata else None
        if holder is not None:
            producer = producer._replace(producer_id=holder.producer_id, epoch=holder.epoch)
        return end(self, producer, *more)

    patch.setattr(TransactionCoordinator, "_end", broken)


def what_is_open_is_not_listed(patch: Patch) -> None:
    patch.setattr(TransactionCoordinator, "list", lambda self: [])


def time_outs_never_come(patch: Patch) -> None:
    patch.setattr(transaction, "has_expired", lambda metadata, now_ms: False)


def _times_out_after(patch: Patch, seconds: int, sealed: bool) -> None:
    """Transactions, sealed or not, time out after so many seconds at most, whatever was agreed."""

    def broken(metadata: Any, now_ms: int) -> bool:
        if metadata.state is not transaction_state.TransactionState.ONGOING:
            return False
        agreed: int = metadata.timeout_ms
        most = min(agreed, seconds * 1000) if metadata.two_phase is sealed else agreed
        return now_ms > int(metadata.start_ms) + most

    patch.setattr(transaction, "has_expired", broken)


def time_outs_come_too_early(patch: Patch) -> None:
    _times_out_after(patch, 3, sealed=False)


def sealed_transactions_time_out(patch: Patch) -> None:
    _times_out_after(patch, 3, sealed=True)


def kept_transactions_are_aborted(patch: Patch) -> None:
    patch.setattr(
        transaction,
        "_keep",
        lambda metadata, timeout_ms, now_ms, new: transaction.fence(metadata, now_ms, new_producer_id=new),
    )


def kept_transactions_time_out(patch: Patch) -> None:
    patch.setattr(transaction, "NO_TIMEOUT_MS", 60_000)


def late_rows_are_taken(patch: Patch) -> None:
    """As by Kafka before 3.6: nobody asks the coordinator. And markers of aborts do not raise the epoch."""
    verify, check_epoch = TransactionCoordinator.verify_partition, producer_state._check_epoch
    check_sequence = producer_state._check_sequence

    def broken(self: Any, name: str, producer_id: int, epoch: int, *more: Any) -> Any:
        known = self._entries.get(name)
        metadata = known.metadata if known else None
        if metadata is not None and metadata.state is transaction_state.TransactionState.COMPLETE_ABORT:
            return None
        return verify(self, name, producer_id, epoch, *more)

    def one_before(state: Any, epoch: int) -> None:
        if epoch + 1 < state.epoch:
            check_epoch(state, epoch)

    def in_sequence(state: Any, header: Any) -> None:
        if header.producer_epoch >= state.epoch:
            check_sequence(state, header)

    patch.setattr(TransactionCoordinator, "verify_partition", broken)
    patch.setattr(producer_state, "_check_epoch", one_before)
    patch.setattr(producer_state, "_check_sequence", in_sequence)


BROKEN: list[tuple[Break, str]] = [
    (judged.readers_see_what_is_undecided, "open transactions"),
    (judged.fenced_epochs_may_write, "a replaced producer"),
    (judged.a_retried_batch_is_written_again, "retries"),
    (judged.a_marker_is_forgotten, "committed rows"),
    (no_marker_is_written, "committed rows"),
    (abort_markers_are_forgotten, "aborted rows"),
    (the_stable_offset_is_told_to_be_the_end, "open transactions"),
    (the_stable_offset_stands_still, "committed rows"),
    (every_third_batch_is_lost, "committed rows"),
    (aborted_rows_are_shown, "aborted rows"),
    (aborts_are_commits, "aborted rows"),
    (late_rows_are_taken, "aborted rows"),
    (offsets_are_forgotten, "offsets in transactions"),
    (metadata_is_forgotten, "offsets in transactions"),
    (pending_offsets_are_not_told, "offsets in transactions"),
    (offsets_stay_pending, "offsets in transactions"),
    (aborted_offsets_count, "what a dead producer left"),
    (offsets_of_fenced_producers_count, "a replaced producer"),
    (whoever_comes_gets_the_same_epoch, "a replaced producer"),
    (the_dead_ones_transactions_go_on, "what a dead producer left"),
    (fenced_epochs_may_end, "a replaced producer"),
    (what_is_open_is_not_listed, "coordinators"),
    (time_outs_never_come, "time-outs"),
    (time_outs_come_too_early, "transactions that have time"),
    (sealed_transactions_time_out, "sealed transactions"),
    (kept_transactions_are_aborted, "two-phase commit"),
    (kept_transactions_time_out, "two-phase commit"),
]
"""A broken broker, and the row that has to fail."""

SAYS: dict[Break, str] = {
    the_stable_offset_is_told_to_be_the_end: "the last stable offset is the end",
    fenced_epochs_may_end: "could still commit",
    late_rows_are_taken: "came after the abort",
    judged.fenced_epochs_may_write: "could still write",
    offsets_of_fenced_producers_count: "could still stage offsets",
    judged.a_marker_is_forgotten: "held back on 1 of 2 partitions",
}
"""What such a row has to say, where a later look would fail as well."""


SWEEPS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""How often a broker looks for transactions that have timed out: often, so that nobody waits for it."""
