"""Records as Arrow columns: the vectorised codec of the data path, in `encode` and `decode`."""

from eoslog.protocol.decode import HEADERS, DecodedRecords, PayloadTooLarge, decode_batches
from eoslog.protocol.encode import EncodedBatch, encode_batches

__all__ = ["HEADERS", "DecodedRecords", "EncodedBatch", "PayloadTooLarge", "decode_batches", "encode_batches"]
