"""Producer ids: each is handed out once, ever, also across crashes.

They are taken in blocks. The small file `producer-ids` says where the next block begins. It is synced to disk
before the first id of a block is used. Ids of a block that are still unused at a crash are skipped.
"""

from __future__ import annotations

import logging
import os

from eoslog.broker.log.files import BadFile, read_whole, write_whole
from eoslog.broker.ports.ports import FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError

FILE = "producer-ids"
BLOCK = 1000
"""Ids in a block, as in Kafka."""

_HEAD = "version: 0\nnext_producer_id: "
logger = logging.getLogger(__name__)


class ProducerIds:
    """The supply of producer ids of one data directory."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        """Read the file. Raises BadFile if its content is not valid."""
        self._fs = fs
        self._path = os.path.join(data_dir, FILE)
        self._next = self._end = self._read()

    def take(self) -> int:
        """Return an id that was never used. COORDINATOR_NOT_AVAILABLE if no block can be written to disk."""
        if self._next == self._end:
            self._reserve()
        taken = self._next
        self._next += 1
        return taken

    def above(self, used: int) -> None:
        """Make sure that no id up to `used`, which was found in a log, is handed out.

        The file is ahead of it already, unless the file was lost or an older copy was put back.
        """
        if used < self._next:
            return
        if self._next == self._end:
            logger.warning("%s is behind: id %d is in use already; the next id is above it", self._path, used)
        self._next = self._end = used + 1

    def _reserve(self) -> None:
        end = self._next + BLOCK
        try:
            write_whole(self._fs, self._path, f"{_HEAD}{end}\n".encode())
        except OSError as error:
            logger.error("no producer ids can be reserved: %s: %s", self._path, error)
            text = f"no producer ids can be reserved, {self._path} cannot be written: {error}"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text) from error
        self._end = end

    def _read(self) -> int:
        if not self._fs.exists(self._path):
            return 0
        text = read_whole(self._fs, self._path).decode("ascii", "replace")
        number = text.removeprefix(_HEAD).strip()
        if not text.startswith(_HEAD) or not number.isdigit():
            raise BadFile(f"{self._path} is not valid; remove it: the logs show which ids are in use")
        return int(number)
