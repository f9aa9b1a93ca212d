"""What a table of any format does for a fan-out, and the commit of a batch to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.fanout.merge import Merge
from eoslog.fanout.rows import Nothing, Rows, Staged
from eoslog.fanout.rules import Batch, FanoutStopped, Mark, Step, check_order, compare, number_of, step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform = Callable[["DataFrame"], "DataFrame"]
TRIES = 30
"""How often a commit is tried while others commit to the table."""


class TableMoved(Exception):
    """Another commit came first: this one is not in the table."""


class Table(Protocol):
    """A table of some format. `place`: its name in messages; `since`: see `rules.step`; `merge`: how it takes
    changes, None: it takes rows."""

    place: str
    since: int | str | None
    merge: Merge | None
    transform: Transform | None

    def prepare(self, rows: Rows, batch: Batch) -> Mark | None:
        """Look at the table (batch 0 creates it), check that the rows fit, and return its mark.

        Raises SchemaError, or FanoutStopped if its mark is damaged or it cannot be written to.
        """

    def mark(self, name: str) -> Mark | None:
        """Read the table again: its mark, and whether it still has the marked batch."""

    def reached(self, query: int) -> int | None:
        """The last batch that it has of a query, under any name, as the table was last read. None: none."""

    def others(self, name: str, query: int) -> Mapping[str, Mark]:
        """Its marks under other names, as it was last read. Whether it still has the batch is judged of those
        of `query`."""

    def stage(self, rows: Rows, batch: Batch) -> Staged:
        """Write the rows to files that no commit names."""

    def commit(self, staged: Staged, batch: Batch) -> None:
        """Commit them with a mark, if the table is as it was last read. Raises TableMoved if it is not."""


def step_of(table: Table, mark: Mark | None, batch: Batch) -> Step:
    """What to do for a table that was just read. Raises FanoutStopped: see `step` and `check_order`."""
    reached = table.reached(batch.query)
    is_newest = mark is not None and (reached is None or reached <= mark.number)
    is_first = mark is None and reached is None and table.merge is None
    others = {} if is_newest or is_first else table.others(batch.name, batch.query)
    if table.merge is not None:
        check_order(table.place, mark, batch, table.since, others)
    return step(table.place, mark, batch, table.since, reached, others)


def write(table: Table, rows: Rows, batch: Batch) -> None:
    """Write a batch that the table does not have.

    What the commit's outcome was is read from the table, never guessed: by its mark, which is the batch's or
    not. Trying again is safe: every try is for the successor of what was read, and there is only one.
    """
    staged = table.stage(rows, batch)
    for tried in range(TRIES):
        try:
            table.commit(staged, batch)
            return
        except Exception as error:
            mark = table.mark(batch.name)
            if step_of(table, mark, batch) is Step.CHECK and mark is not None:
                compare(table.place, mark, staged.content, batch)
                return
            if not isinstance(error, TableMoved):
                raise
            time.sleep(min(1.0, 0.02 * 2**tried))
    raise FanoutStopped(
        f"fanout {batch.name}, batch {batch.number}, {table.place}: others have committed {TRIES} times "
        f"while "
        "this batch was to be committed. The batch is not in the table. Start the query again when less is "
        "written to it"
    )


def check(table: Table, mark: Mark, rows: Rows, batch: Batch) -> None:
    """See that the rows are those that the table has got. Raises FanoutStopped if not."""
    compare(table.place, mark, rows.stage(Nothing).content, batch)


def marked_ends(table: Table, name: str, query_id: str) -> Planned | None:
    """The plan of the last batch that a table has of a query, under the fan-out's name. `query_id`: the id in
    the checkpoint's `metadata`. None: it has none, or its mark does not say the plan any more.

    Raises FanoutStopped if another query has written it, or the table is gone.
    """
    mark = table.mark(name)
    if mark is not None and mark.query != number_of(query_id):
        raise FanoutStopped(
            f"fanout {name}, {table.place}: its batches are another query's than {query_id}'s. Nothing was "
            "changed. Name a table that this query writes, and the name of its fan-out"
        )
    return Planned.parse(mark.number, mark.ends) if mark is not None and mark.ends else None
