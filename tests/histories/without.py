"""Takes out one repair after another: the histories must find it again, or they do not look there.

    python -m tests.histories.without --histories 3000 --minutes 3     # each row, for that long at most
    python -m tests.histories.without StartsElsewhere TakenOver

Prints for each row in how many histories it was found, and after how many for the first time.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from eoslog.checkpoint import carry_out, command, move_command
from eoslog.checkpoint.standing import left_places, position_of
from eoslog.connector.checkpoint import (
    completed_batches,
    new_checkpoint,
    source_changes,
    spark_logs,
    start_checks,
)
from eoslog.connector.checkpoint.noted_places import NOTED_PLACES
from eoslog.connector.commit import begin, decide, finish, leave_sink
from eoslog.connector.commit.commands import Rules
from eoslog.connector.commit.places import Seen, ended
from eoslog.connector.offsets import offsets, plan
from eoslog.connector.options import sink_options
from eoslog.connector.options.sink_options import SinkOptions
from eoslog.connector.run import abandoned_run
from eoslog.connector.sink import committer, source_check, start_of_run, task_writer
from eoslog.connector.sink.start_of_run import StartOfRun
from eoslog.connector.source import reader, source_topics, whole_batches
from eoslog.fanout import table
from eoslog.fanout.delta import DeltaLog
from eoslog.fanout.iceberg import IcebergTarget
from tests.histories import spark, stage
from tests.histories.draw import history, moved, tabled
from tests.histories.run_histories import kinds, play

Change = tuple[Any, str, Any]
"""Whose attribute is what instead."""
ENOUGH = 5
"""A row that was found so often need not be looked for any longer."""


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _empty(*_: Any, **__: Any) -> list[str]:
    return []


def _no_rules(*_: Any, **__: Any) -> Rules[None]:
    return
    yield


def _fewer(old: move_command.Log, new: move_command.Log, at: int, there: int, watch: Any) -> int:
    """By how many records the new log has fewer, whichever they are."""
    had, has = (sum(map(len, log._read(start, log.end))) for log, start in ((old, at), (new, there)))
    return max(had - has, 0)


# -- repairs that are more than one function ----------------------------------------------------


def _blind() -> list[Change]:
    """A checkpoint that is not among the writer's options is gone on without: nothing is compared with it."""
    now: list[bool] = [False]
    init, begin_stream, check = spark.Stream.__init__, committer.begin_stream, begin.check_checkpoint
    before, after = start_of_run.StartOfRun.before, start_of_run.StartOfRun.after

    def told(self: spark.Stream, plan: spark.Plan, *rest: Any) -> None:
        if not plan.told:
            plan.told, plan.sink = True, {**plan.sink, "start.accepted": "blind"}
        init(self, plan, *rest)

    def begins(options: Any, driver: Any = None) -> Any:
        now[0] = "blind" in options.accepted
        try:
            return begin_stream(options, driver)
        finally:
            now[0] = False

    def compared(of: Any, last: Any, batch: Any, leads_to: Any) -> None:
        if now[0]:
            batch, leads_to = batch._replace(digest=""), leads_to._replace(digest="")
        check(of, last, batch, leads_to)

    def unless_blind(real: Callable[..., None]) -> Callable[..., None]:
        return lambda *given: None if now[0] else real(*given)

    return [
        (spark.Stream, "__init__", told),
        (committer, "begin_stream", begins),
        (begin, "check_checkpoint", compared),
        (start_of_run.StartOfRun, "before", unless_blind(before)),
        (start_of_run.StartOfRun, "after", unless_blind(after)),
    ]


def _plainly_without_a_checkpoint() -> list[Change]:
    """at_least_once goes on without the checkpoint that is not among the writer's options."""
    read = committer._read_checkpoint

    def accepting(options: SinkOptions, *runner: Any) -> Any:
        words = {f"no-checkpoint:{number}" for number in range(1000)}
        return read(replace(options, accepted=options.accepted | words), *runner)

    return [(committer, "_read_checkpoint", accepting)]


def _open_winners_are_kept() -> list[Change]:
    clear = finish.clear

    def cleared(*given: Any, **more: Any) -> Rules[tuple[str, ...]]:
        yield from clear(*given, **more)
        return ()

    return [(begin, "clear", cleared)]


def _none_in_log(
    decision: Any, ended_else: list[Any], states: Any
) -> Rules[tuple[list[Any], dict[Any, Seen]]]:
    yield from _no_rules()
    return ended_else, {}


def _first_digest(planned: spark_logs.Planned) -> str:
    return str(_digest.__get__(planned))


_digest: Any = vars(spark_logs.Planned)["digest"]
_look_for_a_successor = StartOfRun._look_for_a_successor


def _by_todays_names(self: StartOfRun, _: Any) -> None:
    _look_for_a_successor(self, None)


def _only_grown() -> list[Change]:
    parted = reader.StreamReader._parted

    def grown(self: Any, stood: Any, until: Any) -> Any:
        found = parted(self, stood, until)
        return {tp: at for tp, at in found.items() if until.offsets.get(tp, -1) >= stood.offsets[tp]}

    return [(reader.StreamReader, "_parted", grown)]


ROWS: dict[str, Callable[[], list[Change]]] = {
    "StartsElsewhere": lambda: [
        (new_checkpoint, "_begins_elsewhere", _empty),
        (new_checkpoint, "_from_the_group", _empty),
        (new_checkpoint, "_check_taken", _nothing),
    ],
    "StartsElsewhere, another sink's group": lambda: [
        (new_checkpoint, "_from_the_group", _empty),
        (new_checkpoint, "_check_taken", _nothing),
    ],
    "StartsElsewhere, a source alone": lambda: [(new_checkpoint, "_check_taken", _nothing)],
    "StartsElsewhere, at_least_once": lambda: [(start_of_run, "check_plain_start", _empty)],
    "TakenOver": lambda: [
        (start_checks, "check_taken_over", _nothing),
        (start_of_run, "check_taken_over", _nothing),
        (start_checks, "check_followed", _nothing),
        (start_of_run, "check_followed", _nothing),
    ],
    "TakenOver, the group moved": lambda: [
        (start_checks, "check_followed", _nothing),
        (start_of_run, "check_followed", _nothing),
    ],
    "TakenOver, under other names": lambda: [
        (StartOfRun, "_look_for_a_successor", _by_todays_names),
        (start_checks, "check_followed", _nothing),
        (start_of_run, "check_followed", _nothing),
    ],
    "TakenOver, a sink that was left": lambda: [(begin, "check_left", _nothing)],
    "SinkChanged": lambda: [(start_of_run, "check_given", _nothing)],
    "the old sink is left": lambda: [(start_of_run, "leave", _no_rules)],
    "at_least_once finishes": lambda: [(committer, "leave_for_none", _nothing)],
    "at_least_once needs its checkpoint": _plainly_without_a_checkpoint,
    "at_least_once finishes what its name has decided": lambda: [(committer, "fence", _no_rules)],
    "open winners of a noted batch": _open_winners_are_kept,
    "a blind checkpoint": _blind,
    "TokenReused": lambda: [(decide, "_check_content", _nothing)],
    "DecisionGone, completed batches": lambda: [
        (start_checks, "check_completed", _nothing),
        (start_of_run, "check_completed", _nothing),
    ],
    "where the sink's last batch ended": lambda: [(new_checkpoint, "_not_where_it_ended", _nothing)],
    "DecisionGone, the group's notes": lambda: [(start_checks, "_check_notes", _nothing)],
    "what a batch reads": lambda: [
        (spark_logs.Planned, "digest", property(lambda planned: _first_digest(planned).partition("+")[0])),
    ],
    "CheckpointOlder": lambda: [
        (begin, "check_checkpoint", _nothing),
        (start_checks, "_check_decided", _nothing),
        (start_checks, "_check_notes", _nothing),
    ],
    "copies of a checkpoint": lambda: [
        (begin, "is_anothers", lambda *_: False),
        (start_of_run, "is_anothers", lambda *_: False),
    ],
    "where the last query has written": lambda: [(start_of_run, "elsewhere", lambda *_: None)],
    "a position is not forgotten": lambda: [(offsets.SourcePosition, "back_in", lambda self, *_: self)],
    "rows are where their batch ended": lambda: [
        (completed_batches, "check_rows", _nothing),
        (new_checkpoint, "check_rows", _nothing),
    ],
    "the log before rows are lost": lambda: [(finish, "_not_in_log", _none_in_log)],
    "leader epochs": lambda: [
        (reader.StreamReader, "_parted", lambda *_: {}),
        (source_topics.SourceTopics, "_not_parted", lambda self, group, within, *_: within),
    ],
    "leader epochs of shorter logs": _only_grown,
    "a checkpoint's line by hand": lambda: [
        (source_topics.SourceTopics, "_as_stored", lambda self, option, wanted: self._within(option, wanted)),
    ],
    "a new checkpoint in a log that was cut": lambda: [(start_of_run, "cut_of", lambda *_: {})],
    "topics created again behind another connector's batch": lambda: [
        (source_check, "check_remade", _nothing),
    ],
    "a topic that is added goes on where it was left": lambda: [
        (command, "_stood", lambda *_: offsets.SourcePosition({}, {}, None, {})),
    ],
    "an edit in a log that was cut": lambda: [(command, "_check_read", _nothing)],
    "rows that retention has taken": lambda: [
        (
            start_of_run,
            "check_forgotten",
            lambda sink, batch, seen, *_: {*ended(seen).values()} == {Seen.COMMITTED},
        ),
    ],
    "topics created again": lambda: [(plan, "recreated", lambda then, now: {})],
    "a first batch that is replayed": lambda: [
        (offsets, "began_from_json", lambda nested: None),
        (reader.StreamReader, "_begins_unknown", lambda *_: False),
    ],
    "where a new source began": lambda: [
        (source_changes, "beginning_of", spark_logs.offsets_of),
        (spark_logs, "beginning_of", spark_logs.offsets_of),
    ],
    "anonymous writes are not sealed": lambda: [
        (sink_options, "of_write", lambda policy, *, named: policy),
    ],
    "a reader of whole batches": lambda: [(whole_batches.Decided, "why_part", lambda *_: "")],
    "an orderly end": lambda: [(abandoned_run, "end", _nothing)],
    "attempts that come too late": lambda: [(task_writer, "withdraw_if_late", _no_rules)],
}
"""A repair, and what makes the connector as it was without it."""
OF_TABLES: dict[str, Callable[[], list[Change]]] = {
    "a fan-out's table that was set back": lambda: [
        (DeltaLog, "gone", _nothing),
        (IcebergTarget, "_gone", _nothing),
    ],
    "a fan-out's table that was set back, and forth": lambda: [
        (DeltaLog, "_having", lambda self, version, *_: [version]),
        (DeltaLog, "_has_files", lambda *_: False),
    ],
    "another query's batches in a table": lambda: [(spark, "number_of", lambda _: 1)],
    "a fan-out's batch with other rows": lambda: [(table, "compare", _nothing)],
}
"""The same of fan-outs: they are looked for in histories of tables alone."""

OF_MOVES: dict[str, Callable[[], list[Change]]] = {
    "what the new cluster has decided": lambda: [  # the mark of a move tells it, too
        (move_command, "_is_known", lambda *_: True),
        (move_command, "_forgotten_there", lambda *_: ""),
        (move_command, "fence", lambda sink, *_: leave_sink.fence(sink)),
    ],
    "what the new cluster has forgotten": lambda: [
        (move_command, "_forgotten_there", lambda *_: ""),
        (move_command, "fence", lambda sink, *_: leave_sink.fence(sink)),
    ],
    "rows behind a move": lambda: [
        (whose, "note_moved", lambda checkpoint, _: checkpoint.forget(NOTED_PLACES))
        for whose in (carry_out, start_of_run)
    ],
    "topics that were left, on the new cluster": lambda: [
        (
            move_command,
            "_left_out",
            lambda old, new, found, *_: (left_places(position_of(found)), [], [], []),
        ),
    ],
    "what the mirror lacks": lambda: [(move_command, "_missing", _fewer)],
    "what others have written below the place": lambda: [(move_command, "_others_below", lambda *_: 0)],
}
"""The same of moves to another cluster."""


@contextmanager
def without(row: str) -> Iterator[None]:
    """Within it the connector lacks this repair."""
    with ExitStack() as changes:
        for whose, name, instead in (ROWS | OF_TABLES | OF_MOVES)[row]():
            changes.enter_context(patch.object(whose, name, instead))
        for parsed in (stage._sinks, stage._sources):
            parsed.cache_clear()
            changes.callback(parsed.cache_clear)
        yield


def look(row: str, count: int, seed: int, minutes: float) -> tuple[list[int], int, str]:
    """The histories that find the row gone, by number; how many were played; what the first one found."""
    found: list[int] = []
    played, what, until = 0, "", time.monotonic() + minutes * 60
    with without(row):
        while played < count and time.monotonic() < until and len(found) < ENOUGH:
            draw = tabled if row in OF_TABLES else moved if row in OF_MOVES else history
            drawn = draw(Random(f"{seed} {played}"))
            world = play(drawn)
            played += 1
            if {*kinds(world)} - {"crash"}:  # that is the broken harness
                found.append(played)
                what = what or ", ".join(sorted(kinds(world)))
    return found, played, what


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help="all, unless some are named", metavar="ROW")
    parser.add_argument("--histories", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=3, help="of each row")
    given = parser.parse_args()
    print("| taken out | found in | first after | as |\n|---|---|---|---|")
    for row in given.rows or (*ROWS, *OF_TABLES, *OF_MOVES):
        found, played, what = look(row, given.histories, given.seed, given.minutes)
        first = str(found[0]) if found else "not found"
        print(f"| {row} | {len(found)} of {played} | {first} | {what} |", flush=True)


if __name__ == "__main__":
    main()
