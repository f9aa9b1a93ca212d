"""Kafka's default partitioner for records with a key: murmur2 of the key's bytes, modulo partitions.

The hash is MurmurHash2 with Kafka's seed, over four bytes a step, all in 32 bits. The sign bit is dropped
before the modulo. Every client with the Java client's placement computes the same.
"""

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.protocol import columns
from eoslog.protocol.equal_lengths import Table
from eoslog.protocol.varints import Bytes, Ints

Words = npt.NDArray[np.uint32]

NO_PARTITION = -1

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF

# Fewer keys than this are faster one by one: a step for all costs as much as a few single steps.
_TOGETHER_LEAST = 16


def _mix(h: int, data: bytes) -> int:
    """Mix all complete steps of four bytes into the hash."""
    for (word,) in struct.iter_unpack("<I", data):
        k = word * _MULTIPLIER & _MASK
        k = (k ^ k >> _SHIFT) * _MULTIPLIER & _MASK
        h = h * _MULTIPLIER & _MASK ^ k
    return h


def murmur2_partition(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each key, NO_PARTITION for null keys. Takes binary or string columns as
    `encode_batches` does.
    """
    if partitions < 1:
        raise ValueError(f"{partitions} partitions: at least one is needed")
    field = columns.BinaryColumn.of("key", keys, len(keys))
    result = np.full(len(keys), NO_PARTITION, np.int32)
    if field.data is None or not len(keys):
        return result
    table = field.as_table()
    if table is not None and not field.data.null_count:
        return _partition(_murmur2_equal(table.table), partitions).astype(np.int32)
    present = np.flatnonzero(field.lengths >= 0)
    begins = columns.offsets_of(field.data)[present]
    data = np.frombuffer(field.data.buffers()[2] or b"", np.uint8)
    result[present] = _partition(_murmur2(data, begins, field.lengths[present]), partitions)
    return result


def _partition(hashes: Words, partitions: int) -> Words:
    return (hashes & np.uint32(_POSITIVE)) % np.uint32(partitions)


def _murmur2_equal(keys: Table) -> Words:
    """Hash keys that all have one length, one key a row."""
    length = keys.shape[1]
    h = np.full(len(keys), _SEED ^ length, np.uint32)
    for at in range(0, length - 3, 4):
        h = _step(h, _number(keys[:, at : at + 4]))
    if length & 3:
        h = (h ^ _number(keys[:, length & ~3 :])) * np.uint32(_MULTIPLIER)
    return _last(h)


def _number(part: Table) -> Words:
    """The little-endian number of each row's one to four bytes."""
    word = part[:, 0].astype(np.uint32)
    for index in range(1, part.shape[1]):
        word |= part[:, index].astype(np.uint32) << np.uint32(8 * index)
    return word


def _step(h: Words, words: Words) -> Words:
    """Mix four bytes of each key into its hash."""
    k = words * np.uint32(_MULTIPLIER)
    k = (k ^ k >> np.uint32(_SHIFT)) * np.uint32(_MULTIPLIER)
    return h * np.uint32(_MULTIPLIER) ^ k


def _last(h: Words) -> Words:
    h = (h ^ h >> np.uint32(13)) * np.uint32(_MULTIPLIER)
    return h ^ h >> np.uint32(15)


def _murmur2(data: Bytes, begins: Ints, lengths: Ints) -> Words:
    """Hash the keys at `begins`, one step of four bytes for all keys at once."""
    order = columns.stable_order(-lengths)  # longest first, so that keys with steps left come first
    at, size = begins[order], lengths[order]
    h = np.uint32(_SEED) ^ size.astype(np.uint32)
    steps = size >> 2
    words = _words(data)
    step, live = 0, int(np.searchsorted(-steps, 0, "left"))
    while live >= _TOGETHER_LEAST:
        h[:live] = _step(h[:live], words[at[:live] + 4 * step])
        step += 1
        live = int(np.searchsorted(-steps, -step, "left"))  # keys of more than `step` steps
    for row in range(live):  # a few keys much longer than the others
        whole = data[at[row] + 4 * step : at[row] + 4 * steps[row]]
        h[row] = _mix(int(h[row]), whole.tobytes())
    for rest in (1, 2, 3):
        rows = np.flatnonzero(size & 3 == rest)
        h[rows] = (h[rows] ^ _tail(data, (at + 4 * steps)[rows], rest)) * np.uint32(_MULTIPLIER)
    hashes = np.empty_like(h)
    hashes[order] = _last(h)
    return hashes


def _words(data: Bytes) -> Words:
    """The little-endian number of the four bytes that begin at each byte: a view, not a copy."""
    return np.ndarray((max(len(data) - 3, 0),), np.dtype("<u4"), data.data, strides=(1,))


def _tail(data: Bytes, at: Ints, size: int) -> Words:
    """The little-endian number of the `size` bytes at each position."""
    word = data[at].astype(np.uint32)
    for index in range(1, size):
        word |= data[at + index].astype(np.uint32) << np.uint32(8 * index)
    return word
