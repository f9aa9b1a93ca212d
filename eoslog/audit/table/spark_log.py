"""Which files of a folder count: the log of Spark's streaming file sink, `_spark_metadata`.

The sink has a file a batch there, which names the files of the batch; those of tasks that died stay in the
folder, but are not named. Every tenth file (`spark.sql.streaming.fileSink.log.compactInterval`) is N.compact
and names all files of batches 0..N; older ones may be deleted. A line of JSON each, after a first line with
the log's version (Spark's FileStreamSinkLog and CompactibleFileStreamLog).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from urllib.parse import unquote, urlsplit

from eoslog.audit.table.files import BadTable

FOLDER = "_spark_metadata"
_NAME = re.compile(r"(\d+)(\.compact)?")
_VERSION = "v1"


def named_files(names: Iterable[str], read: Callable[[str], str], root: str) -> dict[str, int]:
    """The paths below `root` that the log names, with their sizes in bytes. Raises BadTable.

    `names`: the log's files; `read`: the text of one.
    """
    found: dict[str, int] = {}
    for name in _current(names):
        first, *lines = read(name).splitlines() or [""]
        if first != _VERSION:
            raise BadTable(
                f"{root}/{FOLDER}/{name} begins with {first!r} instead of {_VERSION}: it is damaged, or of a "
                "Spark that eoslog does not know"
            )
        for line in lines:
            _add(line, found, root, f"{root}/{FOLDER}/{name}")
    return found


def _current(names: Iterable[str]) -> list[str]:
    """The log's files to read, in order: the last .compact and what follows."""
    parsed = [found for found in map(_NAME.fullmatch, names) if found]
    compact = max((int(m[1]) for m in parsed if m[2]), default=-1)
    later = sorted(int(m[1]) for m in parsed if not m[2] and int(m[1]) > compact)
    if later != list(range(compact + 1, compact + 1 + len(later))):
        gap = next(n for n, at in enumerate(later, compact + 1) if n != at)
        raise BadTable(f"{FOLDER} has no file for batch {gap}, but for batch {later[-1]}: the log is damaged")
    return [*([f"{compact}.compact"] if compact >= 0 else []), *map(str, later)]


def _add(line: str, found: dict[str, int], root: str, log: str) -> None:
    try:
        entry = json.loads(line)
        path, size, action = unquote(urlsplit(entry["path"]).path), int(entry["size"]), entry["action"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadTable(f"{log}: a line is not an entry of a file ({error}): the log is damaged") from error
    inside = path.removeprefix(root.rstrip("/") + "/")
    if inside == path:
        raise BadTable(
            f"{log} names {path}, which is not in {root}: the folder was moved. Give the path that Spark "
            "wrote to"
        )
    if action == "add":
        found[inside] = size
    elif action == "delete":
        found.pop(inside, None)
    else:
        raise BadTable(f"{log}: the action {action!r} is not known")
