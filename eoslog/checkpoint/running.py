"""Whether a query runs: then its checkpoint is not edited.

Its driver may be on this machine: then it has left a note here that names it. Elsewhere, who holds the sink
shows it: a query that works changes the state of its transactional ids. One that waits for rows does nothing
that could be seen. An edit takes the sink from it: at its next batch it stops with SinkFenced, and has
written nothing.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from eoslog.checkpoint.errors import NotEditable
from eoslog.checkpoint.standing import Standing
from eoslog.client.admin.transactions import describe, list_transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.finish import ONGOING
from eoslog.connector.run.run_memory import drivers_of

_LOOK_SECONDS = 0.5
_FENCE = (
    "Stop it first. If it has ended, or is to stop now, give --fence: a query that runs stops at its next "
    "batch, and writes nothing more"
)


def check_rests(cluster: Cluster, standing: Standing, seconds: float) -> None:
    """Watch the query for so long. Raises NotEditable if it runs, KafkaError, EoslogError."""
    drivers = drivers_of(standing.query_id)
    if drivers:
        said = ", ".join(map(str, drivers))
        raise NotEditable(f"a driver of this query lives on this machine (pid {said}). {_FENCE}")
    first, until = _seen(cluster, standing), time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_SECONDS))
        now = _seen(cluster, standing)
        if now.state != first.state or now.open - first.open:  # what only ends may have timed out
            raise NotEditable(
                f"the query runs: its transactions or its checkpoint have just changed. {_FENCE}"
            )


class _Seen(NamedTuple):
    """What a query that works changes: its files, the state of its sink, and its open transactions."""

    state: object
    open: frozenset[str] = frozenset()


def _seen(cluster: Cluster, standing: Standing) -> _Seen:
    files = [standing.checkpoint.batches(log)[-1:] for log in ("offsets", "commits")]
    if standing.sink is None:
        return _Seen(files)
    state = describe(cluster, [standing.sink.coordinator])[standing.sink.coordinator]
    names = {one.transactional_id for one in list_transactions(cluster, standing.sink.prefix, [ONGOING])}
    return _Seen((files, state and state.identity), frozenset(names))
