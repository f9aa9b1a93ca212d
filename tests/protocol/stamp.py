"""What a broker writes into a batch that it stores."""

from eoslog.protocol.batch import HEADER_SIZE, packed, read_header


def stamp(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC does not cover them."""
    stored = read_header(batch)._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    batch[:HEADER_SIZE] = packed(stored)
