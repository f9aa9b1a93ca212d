"""Reads what a topic has of a sink's saves: the newest record of each key."""

from collections.abc import Callable, Iterator

from eoslog.client.admin.topics import list_offsets, settled_end
from eoslog.client.records.fetch import fetch
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.saved_state import Saved
from eoslog.connector.offsets.offsets import EARLIEST
from eoslog.connector.saved.state_files import MANIFEST, Key, Manifest, is_that_of, keys_of

Seen = Callable[[int, int], None]
"""Called with the offsets read so far, and with how many there are."""


def records_of(
    cluster: Cluster, topic: str, partition: int, sink: str, seen: Seen | None = None
) -> Iterator[tuple[Key, bytes | None]]:
    """The sink's records in a partition, in order, of committed transactions. Raises what `fetch` raises."""
    where = (topic, partition)
    start = list_offsets(cluster, {where: EARLIEST}, committed=True)[where]
    end = settled_end(cluster, where)
    for records in fetch(cluster, topic, partition, start, end, committed=True):
        for key, value in zip(records.key.to_pylist(), records.value.to_pylist(), strict=True):
            known = Key.read(key)
            if known is not None and known.sink == sink:
                yield known, value
        if seen is not None:
            seen(records.offset[-1].as_py() + 1 - start, end - start)


class ManifestPieces:
    """Keeps the values of manifests alone; of all other records only that they are there."""

    def __init__(self) -> None:
        self.keys: set[Key] = set()
        self._manifest: dict[Key, bytes] = {}

    def put(self, key: Key, value: bytes) -> None:
        """Keep a record in place of an earlier one."""
        self.keys.add(key)
        if key.kind == MANIFEST:
            self._manifest[key] = value

    def drop(self, key: Key) -> None:
        """Forget a record."""
        self.keys.discard(key)
        self._manifest.pop(key, None)

    def manifest(self, sink: str, saved: Saved) -> Manifest | None:
        """The manifest that a decision names, if it is here."""
        keys = keys_of(sink, MANIFEST, "", saved.size)
        data = b"".join(self._manifest.get(key, b"") for key in keys)
        return parsed(data, saved)


def parsed(data: bytes, saved: Saved) -> Manifest | None:
    """The manifest that a decision names, if it is this one."""
    try:
        text = data.decode()
        return Manifest.parse(text) if is_that_of(saved, text) else None
    except ValueError:
        return None
