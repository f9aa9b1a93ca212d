"""A folder's files, on this machine or on a file system that Arrow opens by its URI.

Spark's users write Hadoop's names of these, s3a for Arrow's s3. Arrow's file systems are slow to import, so
they are imported only for folders on other machines.
"""

import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyarrow import fs


_ARROWS_NAMES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}
"""What Hadoop calls a file system -> what Arrow calls it."""
_GS_LIMIT, _GS_SECONDS = "retry_limit_seconds", 60
_AZURE = "eoslog logs in as Azure's SDK does: AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_CLIENT_SECRET"
_ADVICE = {
    "s3": "eoslog finds keys, region and endpoint as the AWS SDKs do: AWS_PROFILE, or AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL. Spark's options fs.s3a.* do not reach it",
    "gs": "eoslog logs in as Google's libraries do: GOOGLE_APPLICATION_CREDENTIALS",
    "abfs": _AZURE,
    "abfss": _AZURE,
    "hdfs": "eoslog needs Hadoop's libhdfs: JAVA_HOME, HADOOP_HOME, CLASSPATH (hadoop classpath --glob)",
}
"""Arrow's name of a file system -> what its errors ask of the driver's environment."""


class Files(Protocol):
    """The files of one folder. Names are relative to it. Every method raises OSError."""

    def read(self, name: str) -> bytes:
        """The content of a file."""

    def is_there(self, name: str) -> bool:
        """Whether there is such a file."""

    def modified(self, name: str) -> float | None:
        """When the file was written, in seconds since 1970. None: there is no such file, or it is unknown."""

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder; empty if there is no such folder."""

    def walk(self) -> list[str]:
        """The names of all files, those in folders too, in order."""

    def put(self, folder: str, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file, all of it or nothing, and create the folder ("": the root) if necessary. `durable`:
        it outlives a power cut of this machine."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def sync(self, names: Iterable[str]) -> None:
        """Have files that others have written, and their names, outlive a power cut of this machine."""


class ChangedFiles:
    """The files of a folder as they will be after `changes`: a file's content by its name; None: it goes.
    What is put or removed here goes to the folder itself."""

    def __init__(self, files: Files, changes: Mapping[str, bytes | None]) -> None:
        self._files, self._changes = files, changes

    def read(self, name: str) -> bytes:
        """The content of a file."""
        if name not in self._changes:
            return self._files.read(name)
        changed = self._changes[name]
        if changed is None:
            raise FileNotFoundError(name)
        return changed

    def is_there(self, name: str) -> bool:
        """Whether there will be such a file."""
        return self._changes[name] is not None if name in self._changes else self._files.is_there(name)

    def modified(self, name: str) -> float | None:
        """When the file was written. None: it is yet to be written, or unknown."""
        return None if name in self._changes else self._files.modified(name)

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder."""
        inside = f"{folder}/"
        new = {name.removeprefix(inside).partition("/")[0] for name in self._new() if name.startswith(inside)}
        gone = {name.removeprefix(inside) for name in self._changes if name.startswith(inside)} - new
        return sorted(({*self._files.names(folder)} | new) - gone)

    def walk(self) -> list[str]:
        """The names of all files, those in folders too, in order."""
        return sorted(({*self._files.walk()} - {*self._changes}) | self._new())

    def put(self, folder: str, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file, all of it or nothing."""
        self._files.put(folder, name, data, durable=durable)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._files.remove(name)

    def sync(self, names: Iterable[str]) -> None:
        """Have files that are there outlive a power cut."""
        self._files.sync(name for name in names if name not in self._changes)

    def _new(self) -> set[str]:
        return {name for name, data in self._changes.items() if data is not None}


def files_at(location: str) -> Files:
    """The files at a path or URI. Hadoop's form `file:/path` is supported. Raises OSError."""
    local = _local(location)
    return ArrowFiles(arrows_uri(location)) if local is None else LocalFiles(local)


def place_of(location: str) -> str:
    """The folder under one name, whichever form of it was given; URIs without Arrow's options."""
    local = _local(location)
    found = without_options(arrows_uri(location)) if local is None else os.path.realpath(local)
    return found.rstrip("/") + "/"


def without_options(location: str) -> str:
    """The location as Spark takes it: a URI without Arrow's options."""
    return location.partition("?")[0] if _local(location) is None else location


def _local(location: str) -> str | None:
    """A path of this machine. None: the location is a URI."""
    path = re.sub(r"^file:(//)?(?=/)", "", location)
    scheme, colon, _ = path.partition(":")
    return None if colon and re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]+", scheme) else path


def arrows_uri(uri: str) -> str:
    """A URI by Arrow's name of its file system, from Hadoop's.

    Of Azure's hosts Arrow takes the container before the @ for one of dfs alone, and leaves it out for blob.
    """
    scheme, _, rest = uri.partition(":")
    scheme = scheme.lower()
    arrows = _ARROWS_NAMES.get(scheme, scheme)
    if arrows in ("abfs", "abfss"):
        rest = re.sub(r"^(//[^/@:][^/@]*@[^/]+)\.blob\.", r"\1.dfs.", rest)
    if scheme == "gs" and _GS_LIMIT not in rest:  # without a login it would try for a quarter of an hour
        rest += f"{'&' if '?' in rest else '?'}{_GS_LIMIT}={_GS_SECONDS}"
    return f"{arrows}:{rest}"


class LocalFiles:
    """A folder's files on this machine."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with open(self._path(name), "rb") as file:
            return file.read()

    def is_there(self, name: str) -> bool:
        """Whether there is such a file."""
        return self.modified(name) is not None

    def modified(self, name: str) -> float | None:
        """When the file was written. None: there is no such file."""
        try:
            return os.stat(self._path(name)).st_mtime
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder."""
        try:
            return os.listdir(self._path(folder))
        except FileNotFoundError:
            return []

    def walk(self) -> list[str]:
        """The names of all files."""
        found: list[str] = []
        for folder, _, names in os.walk(self._root):
            inside = os.path.relpath(folder, self._root)
            found += names if inside == "." else [f"{inside}/{name}" for name in names]
        return sorted(found)

    def put(self, folder: str, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write the file under a temporary name, then rename it."""
        inside = self._path(folder)
        os.makedirs(inside, exist_ok=True)
        draft = os.path.join(inside, f".{name}.{uuid.uuid4().hex}")
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(draft, os.path.join(inside, name))
        if durable:
            _sync(inside)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def sync(self, names: Iterable[str]) -> None:
        """Sync the files, then their folders."""
        paths = [self._path(name) for name in names]
        for path in [*paths, *dict.fromkeys(map(os.path.dirname, paths))]:
            _sync(path)

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class ArrowFiles:
    """A folder's files on one of Arrow's file systems, by its URI."""

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        self._scheme = uri.partition(":")[0]
        with self._advised():
            self._files, root = fs.FileSystem.from_uri(uri)
        self._root = root.rstrip("/")

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with self._advised(), self._files.open_input_stream(f"{self._root}/{name}") as stream:
            return bytes(stream.read())

    def is_there(self, name: str) -> bool:
        """Whether there is such a file."""
        from pyarrow import fs

        return self._info(name).type is not fs.FileType.NotFound

    def modified(self, name: str) -> float | None:
        """When the file was written. None: there is no such file."""
        written_ns = self._info(name).mtime_ns
        return None if written_ns is None else written_ns / 1e9

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder."""
        return [info.base_name for info in self._infos(f"{self._root}/{folder}")]

    def walk(self) -> list[str]:
        """The names of all files."""
        from pyarrow import fs

        found = self._infos(self._root, recursive=True)
        return sorted(info.path[len(self._root) + 1 :] for info in found if info.type is fs.FileType.File)

    def put(self, folder: str, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write the file under a temporary name, then rename it. Azure's accounts without folders do not
        rename; like every object store they show an object when it is whole."""
        inside = f"{self._root}/{folder}" if folder else self._root
        draft = f"{inside}/.{name}.{uuid.uuid4().hex}"
        with self._advised():
            self._files.create_dir(inside)
            self._write(draft, data)
            try:
                self._files.move(draft, f"{inside}/{name}")
            except NotImplementedError:
                self._files.delete_file(draft)
                self._write(f"{inside}/{name}", data)

    def _write(self, path: str, data: bytes) -> None:
        with self._files.open_output_stream(path) as stream:
            stream.write(data)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.is_there(name):
            with self._advised():
                self._files.delete_file(f"{self._root}/{name}")

    def sync(self, names: Iterable[str]) -> None:
        """Nothing: what another machine's file system has taken does not depend on this one's power."""

    def _infos(self, path: str, *, recursive: bool = False) -> "list[fs.FileInfo]":
        from pyarrow import fs

        with self._advised():
            found: list[fs.FileInfo] = self._files.get_file_info(
                fs.FileSelector(path, allow_not_found=True, recursive=recursive)
            )
        return found

    def _info(self, name: str) -> "fs.FileInfo":
        with self._advised():
            (info,) = self._files.get_file_info([f"{self._root}/{name}"])
        return info

    @contextmanager
    def _advised(self) -> Iterator[None]:
        """Arrow's errors become OSErrors that say what to do."""
        from pyarrow import ArrowException

        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, ValueError, ArrowException) as error:
            advice = _ADVICE.get(self._scheme)
            raise OSError(f"{error} ({advice})" if advice else str(error)) from error
