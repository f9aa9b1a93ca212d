"""A segment: batches in a file, its indexes, the checks of new batches, and when it is synced."""
