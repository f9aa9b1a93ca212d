"""A segment: batches in a file, its indexes, what may enter it, and when it is synced."""
