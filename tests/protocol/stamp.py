"""What a broker writes into a batch that it stores."""

from eoslog.protocol.batch import STORED_START, read_header, stored_start


def stamp(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC does not cover them."""
    batch[:STORED_START] = stored_start(read_header(batch), base_offset, leader_epoch)
