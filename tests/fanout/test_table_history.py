"""What people do to a fan-out's table between two batches: it goes on where the table has the marked batch's
rows, or has lost them by an ordinary act of theirs; else it stops, and each way out of the message ends."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from eoslog.fanout.rules import FanoutStopped
from tests.fanout.kit import FakeTopic, ListRows, delta_at, iceberg_at, numbers_in, words, wrong
from tests.fanout.test_traps import go, ice

AT = pytest.mark.parametrize("at", [delta_at, iceberg_at], ids=["delta", "iceberg"])
Act = Callable[[Any], None]


def three(at: Any, folder: Path) -> Any:
    """A table with batches 0 to 2."""
    table = at(folder)
    for number in range(3):
        go([table], FakeTopic(), number)
        time.sleep(0.01)  # commits of one millisecond cannot be told apart by their times
    return table


def log_of(table: Any) -> list[Path]:
    """The commits of a Delta table, oldest first."""
    return sorted((Path(table.uri) / "_delta_log").glob("*.json"))


def clean_up(table: Any) -> None:
    """What Delta does with commits older than delta.logRetentionDuration: a checkpoint stands for them."""
    DeltaTable(table.uri).create_checkpoint()
    for commit in log_of(table)[:-1]:
        commit.unlink()


def committed_at(table: Any, version: int) -> datetime:
    """When a version was committed: the files of the log say that, and get a second each."""
    first = int(time.time()) - 3600
    for at, commit in enumerate(log_of(table)):
        os.utime(commit, (first + at, first + at))
    return datetime.fromtimestamp(first + version, UTC)


def restored(*versions: int) -> Act:
    def act(table: Any) -> None:
        for version in versions:
            DeltaTable(table.uri).restore(version)

    return act


def by_time(version: int) -> Act:
    """RESTORE TO TIMESTAMP, as Spark notes it: without the version that it has found."""

    def act(table: Any) -> None:
        DeltaTable(table.uri).restore(committed_at(table, version))
        parameters = {"version": None, "timestamp": "2026-01-01 00:00:00"}
        say_of_the_newest(table, operationParameters=parameters)

    return act


def say_of_the_newest(table: Any, **info: Any) -> None:
    """Change what a Delta table's newest commit says about itself."""
    newest = log_of(table)[-1]
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    for line in lines:
        line.get("commitInfo", {}).update(info)
    newest.write_text("".join(json.dumps(line) + "\n" for line in lines))


def other_rows(table: Any) -> None:
    rows = pa.table({"n": pa.array([1000], pa.int64()), "kind": pa.array(["other"])})
    if hasattr(table, "uri"):
        write_deltalake(table.uri, rows, mode="append")
    else:
        ice(table).append(rows)


def compacted(table: Any) -> None:
    if hasattr(table, "uri"):
        DeltaTable(table.uri).optimize.compact()
        return
    stored = ice(table)  # as rewrite_data_files does it
    rows, old = stored.scan().to_arrow(), [task.file for task in stored.scan().plan_files()]
    with stored.transaction() as transaction:
        transaction.overwrite(rows)
    assert old


def deleted(table: Any) -> None:
    """All rows of batch 2, and some of batch 0, by their owner."""
    if hasattr(table, "uri"):
        DeltaTable(table.uri).delete("n >= 20 or n = 3")
    else:
        ice(table).delete("n >= 20 or n = 3")


def replaced(table: Any) -> None:
    """CREATE OR REPLACE TABLE with the same columns."""
    if hasattr(table, "uri"):
        DeltaTable.create(table.uri, DeltaTable(table.uri).schema(), mode="overwrite")
        return
    stored = ice(table)  # Iceberg keeps uuid, properties and snapshots, and forgets the branch main
    stored.catalog.commit_table(stored, (), (RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"}),))


def replaced_by_another_engine(table: Any) -> None:
    """It has a word of its own for that; the table's new id tells."""
    replaced(table)
    if hasattr(table, "uri"):
        say_of_the_newest(table, operation="ANEW")


def replaced_under_its_id(table: Any) -> None:
    """As engines do it that keep the id."""
    if not hasattr(table, "uri"):
        replaced(table)
        return
    old = str(DeltaTable(table.uri).metadata().id)
    replaced(table)
    newest = log_of(table)[-1]
    newest.write_text(newest.read_text().replace(str(DeltaTable(table.uri).metadata().id), old))


def described(table: Any) -> None:
    """A commit with metadata, and no other table."""
    if hasattr(table, "uri"):
        DeltaTable(table.uri).alter.set_table_properties({"delta.appendOnly": "false"})
    else:
        with ice(table).transaction() as transaction:
            transaction.set_properties({"comment": "orders"})


def rolled_back(table: Any) -> None:
    if hasattr(table, "uri"):
        restored(2)(table)
        return
    second = [one.snapshot_id for one in ice(table).snapshots()][1]
    ice(table).manage_snapshots().rollback_to_snapshot(second).commit()


def rolled_forward(table: Any) -> None:
    if hasattr(table, "uri"):
        restored(3)(table)
        return
    third = [one.snapshot_id for one in ice(table).snapshots()][2]
    ice(table).manage_snapshots().set_current_snapshot(third).commit()


@AT
@pytest.mark.parametrize("again", [2, 3], ids=["the batch again", "the next batch"])
@pytest.mark.parametrize("between", [(), (other_rows,)], ids=["", "others wrote in between"])
def test_a_table_rolled_back_stops_and_rolled_forward_goes_on(
    at: Any, again: int, between: tuple[Act, ...], tmp_path: Path
) -> None:
    table = three(at, tmp_path)
    for act in (rolled_back, *between):
        act(table)
    with pytest.raises(FanoutStopped, match="no longer has batch 2"):
        go([table], FakeTopic(), again)
    rolled_forward(table)
    go([table], FakeTopic(), again)
    assert wrong(numbers_in(table), range(again * 10 + 10)) == {}


@AT
def test_the_way_back_says_what_others_have_changed_since(at: Any, tmp_path: Path) -> None:
    """RESTORE and set_current_snapshot take it from the table, too. A compaction changes nothing."""
    table = three(at, tmp_path)
    rolled_back(table)
    with pytest.raises(FanoutStopped) as stopped:
        go([table], FakeTopic(), 3)
    assert "takes back" not in str(stopped.value)
    other_rows(table)
    if hasattr(table, "uri"):
        compacted(table)
        told = "RESTORE it to version 3, which takes back what versions 5 have changed; or say"
    else:
        newest = ice(table).current_snapshot().snapshot_id
        told = rf"the current snapshot \(\S+\), which takes back what snapshots {newest} have changed; or say"
    with pytest.raises(FanoutStopped, match=told):
        go([table], FakeTopic(), 3)


DELTA_HELD: dict[str, tuple[Act, ...]] = {
    "a version by its time": (other_rows, by_time(3)),
    "back and forth": (restored(2, 3, 1, 0, 3),),
    "forth to a version that is good again": (restored(2, 3, 1, 5),),
    "others' rows taken back": (other_rows, compacted, restored(3)),
    "compacted, and restored to that": (compacted, restored(1, 4)),
    "compacted after the way back": (restored(2, 3), compacted),
}


@pytest.mark.parametrize("acts", DELTA_HELD.values(), ids=DELTA_HELD)
def test_a_delta_table_restored_to_a_state_with_the_batch_goes_on(
    acts: tuple[Act, ...], tmp_path: Path
) -> None:
    table = three(delta_at, tmp_path)
    for act in acts:
        act(table)
    for number in (2, 3):
        go([table], FakeTopic(), number)
    assert wrong(numbers_in(table), range(40)) == {}


DELTA_LOST: dict[str, tuple[Act, ...]] = {
    "an older version by its time": (by_time(2),),
    "to a version that had lost it": (restored(2, 3, 4),),
    "compacted since": (restored(2), compacted),
    "others wrote since": (restored(2), other_rows, deleted),
    "a good one before": (other_rows, restored(3), restored(2)),
}


@pytest.mark.parametrize("acts", DELTA_LOST.values(), ids=DELTA_LOST)
@pytest.mark.parametrize("cleaned", [False, True], ids=["", "log cleaned up"])
def test_a_delta_table_restored_to_a_state_without_the_batch_stops(
    acts: tuple[Act, ...], cleaned: bool, tmp_path: Path
) -> None:
    table = three(delta_at, tmp_path)
    for act in (*acts, *([clean_up] if cleaned else [])):
        act(table)
    for number in (2, 3):
        with pytest.raises(FanoutStopped, match="no longer has batch 2" if not cleaned else "batch 2"):
            go([table], FakeTopic(), number)


OWNERS_ACTS: dict[str, tuple[Act, ...]] = {
    "others write": (other_rows,),
    "a property is set": (described,),
    "compaction": (compacted,),
    "rows deleted": (deleted,),
    "rows deleted from compacted files": (compacted, deleted, compacted),
}


@AT
@pytest.mark.parametrize("acts", OWNERS_ACTS.values(), ids=OWNERS_ACTS)
def test_what_the_owner_does_to_rows_stops_nothing(at: Any, acts: tuple[Act, ...], tmp_path: Path) -> None:
    table = three(at, tmp_path)
    for act in acts:
        act(table)
    left = set(numbers_in(table))
    for number in (2, 3):
        go([table], FakeTopic(), number)
    assert numbers_in(table) == sorted(left | set(range(30, 40)))


@AT
@pytest.mark.parametrize("cleaned", [False, True], ids=["", "log cleaned up"])
@pytest.mark.parametrize(
    "acts", [(replaced_under_its_id,), (replaced, other_rows), (compacted, replaced_by_another_engine)]
)
def test_a_replaced_table_stops_until_since_says_from_where_on(
    at: Any, acts: tuple[Act, ...], cleaned: bool, tmp_path: Path
) -> None:
    table = three(at, tmp_path)
    for act in acts:
        act(table)
    if cleaned and hasattr(table, "uri"):
        clean_up(table)
    left, topic = numbers_in(table), FakeTopic()
    for number in (2, 3):
        with pytest.raises(FanoutStopped, match=f'since="{number}:') as stopped:
            go([table], topic, number)
    assert topic.numbers() == [] and numbers_in(table) == left
    since = at(tmp_path, since=words(stopped)[0])
    for number in (3, 3, 4):
        go([since], FakeTopic(), number)
    go([at(tmp_path)], FakeTopic(), 5)
    assert numbers_in(table) == sorted([*left, *range(30, 60)])


@AT
def test_since_gives_a_batch_again_that_was_taken_back(at: Any, tmp_path: Path) -> None:
    """As the message says when the checkpoint plans the marked batch again."""
    table = three(at, tmp_path)
    rolled_back(table)
    with pytest.raises(FanoutStopped, match='since="2:') as stopped:
        go([table], FakeTopic(), 2)
    said, _ = words(stopped)
    since = at(tmp_path, since=said)
    for number in (2, 2, 3):
        go([since], FakeTopic(), number)
    assert numbers_in(table) == list(range(40))


@AT
def test_since_of_the_next_batch_leaves_a_batch_out_that_comes_again(at: Any, tmp_path: Path) -> None:
    table, topic = three(at, tmp_path), FakeTopic()
    rolled_back(table)
    with pytest.raises(FanoutStopped) as stopped:
        go([table], topic, 2)
    since = at(tmp_path, since=words(stopped)[1])
    for number in (2, 2, 3):
        go([since], topic, number)
    assert numbers_in(table) == [*range(20), *range(30, 40)]
    assert topic.numbers() == list(range(20, 40))


def set_back(table: Any, number: int) -> None:
    """To its state when batch `number` was its last one."""
    if hasattr(table, "uri"):
        restored(number + 1)(table)
        return
    snapshot = [one.snapshot_id for one in ice(table).snapshots()][number]
    ice(table).manage_snapshots().rollback_to_snapshot(snapshot).commit()


def four(at: Any, folder: Path, **more: Any) -> Any:
    """A table with batches 0 to 3."""
    table = at(folder, **more)
    for number in range(4):
        go([table], FakeTopic(), number)
        time.sleep(0.01)
    return table


@AT
@pytest.mark.parametrize("way", [0, 1], ids=["the batch again", "as it is"])
def test_a_table_set_back_by_two_batches_says_both(at: Any, way: int, tmp_path: Path) -> None:
    """Also the one before the batch that runs again: the word for this batch does not bring it."""
    table = four(at, tmp_path)
    set_back(table, 1)
    lacks = r"It lacks batches 2 to 3 \(20 rows\)\. .* is to get them, but not batch 2 \(10 rows\), or"
    for since in (None, 3):
        with pytest.raises(FanoutStopped, match=lacks) as stopped:
            go([at(tmp_path, since=since)], FakeTopic(), 3)
    said = at(tmp_path, since=words(stopped)[way])
    for number in (3, 3, 4):
        go([said], FakeTopic(), number)
    assert numbers_in(table) == [*range(20), *range(30 + 10 * way, 50)]


@AT
def test_a_word_that_is_left_in_the_code_is_none_for_the_next_loss(at: Any, tmp_path: Path) -> None:
    """The same batch is lost once more, or one before it as well."""
    table = four(at, tmp_path)
    set_back(table, 2)
    with pytest.raises(FanoutStopped) as stopped:
        go([table], FakeTopic(), 3)
    said = at(tmp_path, since=words(stopped)[0])
    go([said], FakeTopic(), 3)
    set_back(table, 1)
    with pytest.raises(FanoutStopped, match=r"It lacks batches 2 to 3 \(20 rows\)"):
        go([said], FakeTopic(), 3)
    assert numbers_in(table) == list(range(20))


@AT
def test_a_table_set_back_and_a_fan_out_renamed_says_what_is_lost(at: Any, tmp_path: Path) -> None:
    """The new name has no mark; the table's newest mark of the query is the former name's."""
    table = four(at, tmp_path)
    set_back(table, 1)
    told = r"another name \(orders\)\. .* that name again: it no longer has batch 3.*is told under that name$"
    for since in (None, 3, 4):
        with pytest.raises(FanoutStopped, match=told):
            go([at(tmp_path, since=since)], FakeTopic(), 3, name="renamed")
        with pytest.raises(FanoutStopped, match=r"It lacks batches 2 to 3 \(20 rows\)\.") as stopped:
            go([at(tmp_path, since=since)], FakeTopic(), 4, name="renamed")
    said = at(tmp_path, since=words(stopped)[0])
    for number in (4, 4, 5):
        go([said], FakeTopic(), number, name="renamed")
    assert numbers_in(table) == [*range(20), *range(40, 60)]
    set_back(table, 1)
    with pytest.raises(FanoutStopped, match=r"It lacks batches 2 to 5 \(40 rows\)\."):
        go([said], FakeTopic(), 6, name="renamed")


@AT
def test_a_batch_s_number_says_that_a_name_is_new_and_no_loss(at: Any, tmp_path: Path) -> None:
    """It stays in the code from the day on which the name began. Then the table is set back."""
    table = at(tmp_path)
    for number in range(3):
        go([table], FakeTopic(), number)
    with pytest.raises(
        FanoutStopped, match=r"has batch 2 of this query under the name orders.*since=3 for it$"
    ):
        go([table], FakeTopic(), 3, name="renamed")
    since = at(tmp_path, since=3)
    for _ in range(2):
        go([since], FakeTopic(), 3, name="renamed")
    assert numbers_in(table) == list(range(40))
    set_back(table, 1)
    with pytest.raises(FanoutStopped, match=r"It lacks batches 2 to 3 \(20 rows\)\."):
        go([since], FakeTopic(), 3, name="renamed")
    assert numbers_in(table) == list(range(20))


@pytest.mark.parametrize("dropped", [False, True], ids=["an older copy", "dropped"])
def test_a_number_of_a_former_life_is_no_word(dropped: bool, tmp_path: Path) -> None:
    """Another query, under another name, comes to the batch; the table is an older copy then, or none."""
    table = delta_at(tmp_path, since=4)
    for number in range(4):
        go([table], FakeTopic(), number, name="anew", query=8)
        if number == 1:
            shutil.copytree(table.uri, tmp_path / "copy")
    shutil.rmtree(table.uri)
    if not dropped:
        shutil.copytree(tmp_path / "copy", table.uri)
    lacks = "lacks batches 0 to 3" if dropped else "ends at batch 1, .* It lacks batches 2 to 3"
    with pytest.raises(FanoutStopped, match=lacks) as stopped:
        go([table], FakeTopic(), 4, name="anew", query=8)
    (word,) = words(stopped)
    with pytest.raises(FanoutStopped, match=lacks):
        go([delta_at(tmp_path, since=f"4:{'0' * 8}")], FakeTopic(), 4, name="anew", query=8)
    for number in (4, 4, 5):
        go([delta_at(tmp_path, since=word)], FakeTopic(), number, name="anew", query=8)
    assert numbers_in(table) == [*(() if dropped else range(20)), *range(40, 60)]


@AT
def test_a_table_and_its_checkpoint_set_back_together_go_on_exactly(at: Any, tmp_path: Path) -> None:
    """The mark says batch 3, and the query is at batch 2 again: the table has it, or lacks it."""
    table = four(at, tmp_path)
    set_back(table, 2)
    with pytest.raises(FanoutStopped, match=r"It lacks batch 3 .*it has this batch already") as stopped:
        go([table], FakeTopic(), 2)
    assert words(stopped) == []
    set_back(table, 1)
    with pytest.raises(FanoutStopped, match=r"it gets the rows from this batch on$") as stopped:
        go([table], FakeTopic(), 2)
    said = at(tmp_path, since=words(stopped)[0])
    for number in (2, 2, 3):
        go([said], FakeTopic(), number)
    assert numbers_in(table) == list(range(40))


@AT
def test_since_of_a_batch_long_ago_excuses_no_later_rollback(at: Any, tmp_path: Path) -> None:
    table = three(at, tmp_path)
    rolled_back(table)
    for number in (2, 3):
        with pytest.raises(FanoutStopped, match="no longer has batch 2"):
            go([at(tmp_path, since=1)], FakeTopic(), number)


def test_a_batch_without_rows_that_is_taken_back_is_no_loss(tmp_path: Path) -> None:
    table, topic = delta_at(tmp_path), FakeTopic()
    for number in range(2):
        go([table], topic, number)
    for number in (2, 3):
        go([table], topic, number, rows=ListRows(range(0)))
    restored(2)(table)
    for number in (3, 4):
        go([table], topic, number, rows=ListRows(range(20, 30) if number == 4 else range(0)))
    assert numbers_in(table) == list(range(30))
    go([table], topic, 5, rows=ListRows(range(0)))
    restored(2)(table)
    with pytest.raises(FanoutStopped, match="no longer has batch 5"):
        go([table], topic, 6)


def test_a_delta_log_that_was_cleaned_up_is_no_harm_while_the_batch_s_files_are_there(tmp_path: Path) -> None:
    table = three(delta_at, tmp_path)
    for act in (other_rows, restored(2, 3), clean_up):
        act(table)
    for number in (2, 3):
        go([table], FakeTopic(), number)
    assert wrong(numbers_in(table), range(40)) == {}


def test_a_compacted_delta_table_with_a_log_cleaned_up_stops_and_says_how_to_go_on(tmp_path: Path) -> None:
    """Whether the compaction or a RESTORE took the files is no longer known."""
    table = three(delta_at, tmp_path)
    for act in (other_rows, compacted, clean_up):
        act(table)
    for number in (2, 3):
        with pytest.raises(
            FanoutStopped, match=r'no longer says whether .* since="3:' if number == 3 else "log"
        ) as stopped:
            go([table], FakeTopic(), number)
    go([delta_at(tmp_path, since=words(stopped)[0])], FakeTopic(), 3)
    assert wrong(numbers_in(table), range(40)) == {}


def test_another_table_s_log_under_the_mark_stops(tmp_path: Path) -> None:
    """A copy that took over the marks, but not the commits: the marked version is another commit."""
    table = three(delta_at, tmp_path)
    newest = log_of(table)[-1]
    lines = [line for line in newest.read_text().splitlines() if '"txn"' in line]
    (tmp_path / "copy").mkdir()
    copy = delta_at(tmp_path / "copy")
    rows = pa.table({"n": pa.array([1], pa.int64()), "kind": pa.array(["x"])})
    write_deltalake(copy.uri, rows)
    with log_of(copy)[0].open("a") as log:
        log.write("\n".join(lines) + "\n")
    with pytest.raises(FanoutStopped, match="no longer has batch 2"):
        go([copy], FakeTopic(), 3)
    for _ in range(4):
        write_deltalake(copy.uri, rows, mode="append")
    with pytest.raises(FanoutStopped, match="no longer has batch 2"):
        go([copy], FakeTopic(), 3)


def test_an_iceberg_batch_picked_onto_another_history_is_there(tmp_path: Path) -> None:
    """cherrypick_snapshot: the same files, in a snapshot that does not come from the batch's."""
    table = three(iceberg_at, tmp_path)
    third = ice(table).snapshots()[2]
    (manifest,) = [
        one for one in third.manifests(ice(table).io) if one.added_snapshot_id == third.snapshot_id
    ]
    files = [entry.data_file for entry in manifest.fetch_manifest_entry(ice(table).io)]
    rolled_back(table)
    with ice(table).transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    for number in (2, 3):
        go([table], FakeTopic(), number)
    assert numbers_in(table) == list(range(40))


def test_iceberg_snapshots_expired_after_a_rewrite_of_manifests_are_no_harm(tmp_path: Path) -> None:
    """The way to the batch's snapshot is cut, and its manifest is another one; its files are there."""
    table = three(iceberg_at, tmp_path)
    other_rows(table)
    with ice(table).transaction() as transaction:
        transaction.set_properties(
            {"commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "true"}
        )
        with transaction.update_snapshot().merge_append():
            pass
    assert ice(table).current_snapshot().summary.operation is Operation.APPEND
    old = [one.snapshot_id for one in ice(table).snapshots()][:-1]
    ice(table).maintenance.expire_snapshots().by_ids(old).commit()
    for number in (2, 3):
        go([table], FakeTopic(), number)
    assert wrong(numbers_in(table), range(40)) == {}


def test_an_iceberg_table_rewritten_with_its_snapshots_expired_stops_and_says_how_to_go_on(
    tmp_path: Path,
) -> None:
    table = three(iceberg_at, tmp_path)
    for act in (other_rows, compacted):
        act(table)
    old = [one.snapshot_id for one in ice(table).snapshots()][:-1]
    ice(table).maintenance.expire_snapshots().by_ids(old).commit()
    with pytest.raises(FanoutStopped, match=r'no longer says? whether .* since="3:') as stopped:
        go([table], FakeTopic(), 3)
    go([iceberg_at(tmp_path, since=words(stopped)[0])], FakeTopic(), 3)
    assert wrong(numbers_in(table), range(40)) == {}
