"""Records as Arrow columns: the vectorised codec of the data path, in `encode` and `decode`."""

from eoslog.protocol.decode import DecodedRecords, decode_batches
from eoslog.protocol.encode import EncodedBatch, encode_batches

__all__ = ["DecodedRecords", "EncodedBatch", "decode_batches", "encode_batches"]
