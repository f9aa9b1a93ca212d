"""A checkpoint as it was before an edit: its files, with those of the backup in their place. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eoslog.checkpoint.backups import Backup, backups_since
from eoslog.checkpoint.edits import LogFile
from eoslog.checkpoint.errors import NotEditable
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.files import Files, files_at


def before_edit(checkpoint: Checkpoint, name: str) -> tuple[Checkpoint, Backup]:
    """The checkpoint before the edit of this name, whatever edits came after it; and the edit's backup.
    Raises CheckpointUnreadable, NotEditable."""
    backups = backups_since(checkpoint, name)
    moved = [backup.name for backup in backups if backup.has_moved]
    if moved:
        raise NotEditable(f"the offsets before {name} are of another cluster: {moved[0]} has moved the query")
    files: Files = files_at(checkpoint.location)
    for backup in reversed(backups):
        files = _EarlierFiles(files, backup.before)
    return Checkpoint(files, f"{checkpoint.location} before {name}"), backups[0]


class _EarlierFiles:
    """Files, some of which had other texts. Batches behind the first that changed are there only if the
    backup has them: the edit found no others."""

    def __init__(self, files: Files, texts: Mapping[LogFile, str | None]) -> None:
        self._files, self._texts = files, {f"{log}/{batch}": text for (log, batch), text in texts.items()}
        self._least = min(batch for log, batch in texts if log in _LOGS)

    def read(self, name: str) -> bytes:
        """The content of a file. Raises OSError, as all of these."""
        if not self.is_there(name):
            raise FileNotFoundError(f"{name} was not there")
        text = self._texts.get(name)
        return self._files.read(name) if text is None else text.encode()

    def is_there(self, name: str) -> bool:
        """Whether there was such a file."""
        if name in self._texts:
            return self._texts[name] is not None
        return not self._is_later(name) and self._files.is_there(name)

    def modified(self, name: str) -> float | None:
        """When the file was written; it is not known of one that was changed."""
        return None if name in self._texts or self._is_later(name) else self._files.modified(name)

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder."""
        own = [name.removeprefix(f"{folder}/") for name in self._texts if name.startswith(f"{folder}/")]
        found = {*self._files.names(folder), *own}
        return [name for name in found if folder not in _LOGS or self.is_there(f"{folder}/{name}")]

    def walk(self) -> list[str]:
        """The names of all files."""
        found = {*self._files.walk(), *self._texts}
        return sorted(name for name in found if self.is_there(name))

    def put(self, folder: str, name: str, data: bytes, *, durable: bool = True) -> None:
        """What was cannot be changed."""
        raise OSError(f"{folder}/{name} of an earlier checkpoint cannot be written")

    def remove(self, name: str) -> None:
        """What was cannot be changed."""
        raise OSError(f"{name} of an earlier checkpoint cannot be removed")

    def sync(self, names: Iterable[str]) -> None:
        """What was stays as it was."""
        raise OSError(f"{', '.join(names)} of an earlier checkpoint cannot be synced")

    def _is_later(self, name: str) -> bool:
        log, _, batch = name.partition("/")
        return log in _LOGS and batch.isdecimal() and int(batch) > self._least


_LOGS = ("offsets", "commits")
