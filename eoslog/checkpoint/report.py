"""What `eoslog checkpoint` prints: documents for --json, and the same as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eoslog.checkpoint.backups import newest_backup
from eoslog.checkpoint.foretell import Fate, Foretold
from eoslog.checkpoint.standing import Standing, named_places
from eoslog.checkpoint.targets import LogBounds

COLUMNS = ["source", "topic", "partition", "from", "to", "group", "end", "lag"]


def shown(standing: Standing, bounds: LogBounds, next_start: str) -> dict[str, Any]:
    """All that `show` tells. `next_start`: what the next start will do, or what will stop it. Offsets of the
    newest batch: from its beginning, to its end; `lag`: offsets that the query has yet to read."""
    note, decided, backup = standing.note, standing.decided, newest_backup(standing.checkpoint)
    return {
        "checkpoint": standing.checkpoint.location,
        "query": standing.query_id,
        "cluster": standing.cluster_id,
        "offset_log": None if standing.newest is None else "v2" if standing.newest.names else "v1",
        "planned": standing.newest and standing.newest.batch_id,
        "done": standing.completed,
        "decided": decided and decided.batch_id,
        "transactional_id": note and note.sink,
        "group": note and note.group,
        "coordinator": standing.state and standing.state.state,
        "stateful": standing.is_stateful,
        "next_start": next_start,
        "last_edit": backup and {"name": backup.name, "kind": backup.kind, "state": str(backup.state)},
        "partitions": _partitions(standing, bounds),
    }


def _partitions(standing: Standing, bounds: LogBounds) -> list[dict[str, Any]]:
    if standing.newest is None:
        return []
    before = standing.checkpoint.planned_if_kept(standing.newest.batch_id - 1)
    begins = {} if before is None else named_places(before)
    last = standing.last_written
    stands = {} if last is None else named_places(last)
    return [
        {
            "source": place[0],
            "topic": place[1],
            "partition": place[2],
            "from": begins.get(place),
            "to": at,
            "group": standing.committed[place[1:]].offset if place[1:] in standing.committed else None,
            "end": bounds.end.get(place[1:]),
            "lag": _lag(bounds, place[1:], stands.get(place)),
        }
        for place, at in sorted(named_places(standing.newest).items())
    ]


def _lag(bounds: LogBounds, where: tuple[str, int], stands: int | None) -> int | None:
    return None if stands is None or where not in bounds.end else max(bounds.end[where] - stands, 0)


def head(document: Mapping[str, Any]) -> list[str]:
    """The lines above the table of `show`."""
    sink = document["transactional_id"] or "none that keeps decisions"
    group = document["group"] or "none (no kafka.group.id)"
    lines = [
        f"query {document['query']}, offset log {document['offset_log'] or 'empty'}"
        + (", keeps state" if document["stateful"] else ""),
        f"batches: planned {_number(document['planned'])}, decided {_number(document['decided'])}, "
        f"done {_number(document['done'])}",
        f"sink: {sink} ({document['coordinator'] or 'not known to the cluster'}), group: {group}",
        f"next start: {document['next_start']}",
    ]
    edit = document["last_edit"]
    return [*lines, f"last edit: {edit['name']} ({edit['kind']}), {edit['state']}"] if edit else lines


def _number(value: int | None) -> str:
    return "none" if value is None else str(value)


def foretold_lines(foretold: Foretold) -> list[str]:
    """What an edit does, a line for each partition, and in all."""
    lines = [
        f"{one.topic}-{one.partition}: from {one.before} to {one.after}: {one.rows} rows {one.fate}"
        for one in foretold.moved
    ]
    twice, never = foretold.rows(Fate.TWICE), foretold.rows(Fate.NEVER)
    return [*lines, f"in all: {twice} rows of the source twice, {never} never"]
