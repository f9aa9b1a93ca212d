"""The log of a partition: segments, indexes, append, read, group flush, recovery."""
