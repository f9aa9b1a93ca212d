"""What a broker writes into a batch that it takes."""

import struct


def stamp(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC does not cover them."""
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, leader_epoch)
