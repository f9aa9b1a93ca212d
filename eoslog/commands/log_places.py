"""The paths given to `eoslog log verify`: data directories, partitions' directories, segments.

While a broker runs, the files change as they are read. Something that looks wrong is checked again then, and
is a finding only if it is wrong each time.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator

from eoslog.broker.log import data_dir, files
from eoslog.broker.log.data_dir import META
from eoslog.commands.log_files import READ_ONLY, Fix, LogFinding, Report, whole
from eoslog.commands.log_verify import DirectoryFacts, PartitionDirectory

LOCK = ".lock"
LOOK_AGAIN = (0.05, 0.2, 0.5, 1.0)
"""Seconds before each further check; about two seconds in all."""

Offsets = dict[tuple[str, int], int]


class DataDirectory:
    """What a data directory says about its logs. Another directory says nothing."""

    def __init__(self, path: str, *, locked: bool = False) -> None:
        """`locked`: by the caller. Raises OSError."""
        self.path = path
        self._locked = locked
        self.ours = os.path.exists(self.file(files.LIFE_EPOCH))  # eoslog's, not Apache Kafka's
        self.gappy: Offsets = {}  # logs with gaps, while the list of compacted logs is unreadable
        self.read()

    def read(self) -> None:
        """Read the directory's files as they are now. Raises OSError."""
        self.findings: list[LogFinding] = []
        self._is_one = self.ours or os.path.exists(self.file(META))
        self.topics = self._topics()
        points = self._offsets(files.RECOVERY_POINTS, Fix())
        starts = self._offsets(files.LOG_STARTS, None)
        self.points = points or {}
        self._starts, self.cleaned = starts, self._offsets(files.CLEANER_OFFSETS, None)

    def file(self, name: str) -> str:
        """The path of a file of the directory."""
        return os.path.join(self.path, name)

    def _offsets(self, name: str, fix: Fix | None) -> Offsets | None:
        """The offsets in a checkpoint file; None, and a finding, if it is not valid."""
        path = self.file(name)
        try:
            return files.decode_offsets(whole(path), path)
        except FileNotFoundError:
            return {}
        except files.BadFile as error:
            text = f"{error}"
            if name == files.LOG_STARTS:
                text = "it cannot be read; put it back from a copy: without it deleted records may come back"
            self.findings.append(LogFinding(path, 0, text, fix))
            return None

    def _topics(self) -> dict[str, data_dir.TopicEntry]:
        path = self.file(data_dir.REGISTRY)
        try:
            return {entry.name: entry for entry in data_dir.decode(whole(path), path).topics}
        except FileNotFoundError:
            return {}
        except files.BadFile as error:
            self.findings.append(LogFinding(path, 0, str(error)))
            return {}

    def known(self, directory: str) -> DirectoryFacts:
        """What it says about the log in a partition's directory."""
        name = partition_of(directory)
        if not self._is_one or name is None:
            return DirectoryFacts()
        start = self._starts.get(name, 0) if self.ours and self._starts is not None else None
        gaps = self._is_compacted(name[0]) if self.cleaned is None else name in self.cleaned
        return DirectoryFacts(start, self.points.get(name, 0), gaps, self.ours)

    def _is_compacted(self, topic: str) -> bool:
        entry = self.topics.get(topic)
        return entry is not None and "compact" in entry.configs.get("cleanup.policy", "")

    @property
    def running(self) -> bool:
        """Whether a broker runs on it, and so has its lock. The lock is taken and released at once."""
        if self._locked:
            return False
        try:
            fd = os.open(self.file(LOCK), READ_ONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def finish(self) -> None:
        """All logs were read. If the list of compacted logs is unreadable, the fix is a new one: the logs of
        compacted topics that have gaps.
        """
        if self.cleaned is None:
            path = self.file(files.CLEANER_OFFSETS)
            fix = Fix(files.encode_offsets(self.gappy) if self.gappy else None)
            self.findings = [
                LogFinding(path, 0, finding.text, fix) if finding.path == path else finding
                for finding in self.findings
            ]


def partition_of(directory: str) -> tuple[str, int] | None:
    """Topic and number of a partition, from the name of its directory; None for another directory."""
    topic, _, index = os.path.basename(os.path.abspath(directory)).rpartition("-")
    return (topic, int(index)) if topic and index.isdigit() else None


def data_directory_of(path: str) -> str:
    """The data directory that contains a path, or is it."""
    place = path if os.path.isdir(path) else os.path.dirname(path) or "."
    return os.path.dirname(os.path.abspath(place)) if _is_partition(place) else place


def _is_partition(directory: str) -> bool:
    names = os.listdir(directory)
    return files.PARTITION_METADATA in names or bool(files.offsets_of(names, files.LOG))


def size_of(paths: Iterable[str]) -> int:
    """Bytes of the segments under these paths. Raises OSError."""
    return sum(_bytes(log) for path in paths for log in _logs(path))


def _logs(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
    for place, _, names in os.walk(path):
        yield from (os.path.join(place, name) for name in names if name.endswith(files.LOG))


def _bytes(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:  # a broker has removed it in the meantime
        return 0


def verify_all(paths: Iterable[str], report: Report, *, locked: bool = False) -> None:
    """Verify segments, partitions' directories and data directories; `locked`: by the caller.

    Raises OSError.
    """
    for path in paths:
        data = DataDirectory(data_directory_of(path), locked=locked)
        if data.running and data.path not in report.running:
            report.running.append(data.path)
        if not os.path.isdir(path):
            _verify_file(path, data, report)
        elif _is_partition(path):
            _verify_log(path, data, report)
            report.findings += data.findings
        else:
            _verify_data_dir(data, report)


def _verify_file(path: str, data: DataDirectory, report: Report) -> None:
    if not path.endswith(files.LOG):
        report.add(path, 0, "verify segments (.log) with their indexes, or directories")
        return
    directory = os.path.dirname(path) or "."
    _look(data, report, lambda found: PartitionDirectory(directory, data.known(directory), found).alone(path))


def _verify_data_dir(data: DataDirectory, report: Report) -> None:
    names = [name for name in sorted(os.listdir(data.path)) if partition_of(name) is not None]
    directories = [path for path in map(data.file, names) if os.path.isdir(path)]
    for directory in directories:
        _verify_log(directory, data, report)
    _look(data, report, lambda found: _missing(data, found))
    data.finish()
    report.findings += data.findings
    if not directories:
        report.add(data.path, 0, "no partition's directory is in here")


def _verify_log(directory: str, data: DataDirectory, report: Report) -> None:
    def look(found: Report) -> None:
        try:
            log = PartitionDirectory(directory, data.known(directory), found)
        except FileNotFoundError:  # its topic was deleted in the meantime
            return
        log.run()
        name = partition_of(directory)
        if log.has_gaps and name is not None and data.known(directory).gaps:
            data.gappy[name] = 0

    _look(data, report, look)


def _missing(data: DataDirectory, report: Report) -> None:
    """Report the partitions that had records and whose directory is missing."""
    for (topic, index), point in data.points.items():
        entry, directory = data.topics.get(topic), data.file(f"{topic}-{index}")
        if point and entry and index < entry.partitions and not os.path.exists(directory):
            text = (
                f"the directory is missing, but offsets up to {point} were written. Put it back from a copy"
            )
            report.add(directory, 0, text)


def _look(data: DataDirectory, report: Report, look: Callable[[Report], None]) -> None:
    """Add what `look` finds; while a broker runs, only what it finds every time."""
    first = Report(progress=report.progress)
    look(first)
    for name, count in first.counts.items():
        report.counts[name] += count
    found = first.findings
    deadline = time.monotonic() + sum(LOOK_AGAIN)
    for seconds in LOOK_AGAIN:
        if not found or not data.running:
            break
        time.sleep(seconds)
        data.read()
        again = Report()
        look(again)
        still = {(finding.path, finding.position, finding.text) for finding in again.findings}
        found = [one for one in found if (one.path, one.position, one.text) in still]
        if time.monotonic() > deadline:
            break
    report.findings += found
