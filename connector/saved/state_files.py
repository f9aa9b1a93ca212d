"""Which files of a checkpoint Spark needs to run a batch. Pure, but for the zip files that it is given.

The state before batch B is version B. Each partition of each operator has a folder with a file for each
version: what changed (`<version>.delta`, `<version>.changelog`), and now and then all of it (`.snapshot`,
`.zip`). With Spark's checkpoint format 2 a name has the unique id of the task that wrote it
(`<version>_<id>.zip`), as several may have. A zip of RocksDB names further files, in SSTs/ and logs/, that it
shares with other versions.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

_WHOLE, _CHANGES = ("snapshot", "zip"), ("delta", "changelog")
_VERSION = re.compile(rf"(\d+)(?:_([^.]+))?\.({'|'.join((*_WHOLE, *_CHANGES))})(\.crc)?")
_SHARED = re.compile(r"state/\d+/.*/(SSTs|logs)/[^/]+")
_STATE = re.compile(r"(state/\d+/\d+(?:/[^/]+)?)/([^/]+)")
_KEPT_WHOLE = re.compile(r"metadata|eoslog/sink|eoslog/sources|sources/.*|state/.*")

ReadFile = Callable[[str], bytes]


class StateGone(ValueError):
    """The checkpoint lacks files of the state; the message says which."""


class _Versioned(NamedTuple):
    """A file of one version of a partition's state."""

    version: int
    unique_id: str
    kind: str
    name: str


def files_before(batch: int, names: Iterable[str], read: ReadFile, *, planned: bool = True) -> list[str]:
    """The files that Spark needs to run a batch, of all names in the checkpoint. `read`: a file's content.
    `planned`: the batch is planned already; else the files are those that it takes to plan it.

    Raises StateGone.
    """
    there = {name for name in names if not _is_hidden(name)}
    folders: dict[str, list[_Versioned]] = {}
    plain = []
    for name in sorted(there):
        found = _STATE.fullmatch(name)
        versioned = found and _VERSION.fullmatch(found[2])
        if found and versioned:
            if not versioned[4]:
                one = _Versioned(int(versioned[1]), versioned[2] or "", versioned[3], name)
                folders.setdefault(found[1], []).append(one)
        elif _KEPT_WHOLE.fullmatch(name) and not _SHARED.fullmatch(name):
            plain.append(name)
    last = batch if planned else batch - 1  # Spark reads two entries of the offset log when it starts
    logs = [f"offsets/{n}" for n in (last, last - 1) if n >= 0] + [f"commits/{batch - 1}"] * (batch > 0)
    state = [one for folder, files in folders.items() for one in _needed(folder, files, batch)]
    shared = {name for one in state for name in _named_in(one, read)}
    wanted = {*plain, *logs, *(one.name for one in state), *shared}
    lacks = sorted(wanted - there)
    if lacks:
        raise StateGone(f"{', '.join(lacks[:5])} of {len(lacks)} files that batch {batch} needs are missing")
    sums = {f"{one.name}.crc" for one in state} & there
    return sorted(wanted | sums)


def is_of_checkpoint(name: str) -> bool:
    """Whether this may be the name of a saved file. A name from elsewhere must not lead out of the folder."""
    known = _KEPT_WHOLE.fullmatch(name) or re.fullmatch(r"(offsets|commits)/\d+", name)
    return bool(known) and not any(part in ("", ".", "..") for part in name.split("/"))


def is_versioned(name: str) -> bool:
    """Whether a file belongs to one version of the state: it does not change once that is complete."""
    return bool(_SHARED.fullmatch(name)) or bool(_VERSION.fullmatch(name.rpartition("/")[2]))


def _is_hidden(name: str) -> bool:
    """Whether it is a draft, or a checksum of Hadoop's, which no other file system has."""
    return "/." in name or name.startswith(".")


def _needed(folder: str, files: list[_Versioned], version: int) -> Iterator[_Versioned]:
    """The files of the newest version that is there as a whole, and of the changes from there on."""
    if version == 0:
        return
    old = [one for one in files if one.version <= version]
    ids = _ids(old)
    whole = sorted({one.version for one in old if one.kind in _WHOLE}, reverse=True)
    for begin in (*whole, 0):
        clear = begin == version or all(len(ids.get(n, ())) == 1 for n in range(max(begin, 1), version + 1))
        if clear:
            yield from (one for one in old if one.version == begin and one.kind in _WHOLE)
            yield from (one for one in old if one.version > begin and one.kind in _CHANGES)
            return
    raise StateGone(f"{folder} has no unbroken line of files up to version {version}")


def _ids(files: list[_Versioned]) -> Mapping[int, set[str]]:
    """The unique ids of each version. If there are several, only a whole version tells which one counts."""
    found: dict[int, set[str]] = {}
    for one in files:
        found.setdefault(one.version, set()).add(one.unique_id)
    return found


def _named_in(one: _Versioned, read: ReadFile) -> Iterator[str]:
    """The files that a zip of RocksDB shares with other versions."""
    if one.kind != "zip":
        return
    folder = one.name.rpartition("/")[0]
    with zipfile.ZipFile(io.BytesIO(read(one.name))) as packed:
        text = packed.read("metadata").decode()
    said = json.loads(text.partition("\n")[2])
    for kind, place, key in (("sstFiles", "SSTs", "dfsSstFileName"), ("logFiles", "logs", "dfsLogFileName")):
        yield from (f"{folder}/{place}/{file[key]}" for file in said.get(kind) or ())
