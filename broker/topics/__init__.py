"""Topics and their partitions: made, found, changed, deleted, in steps that a crash cannot halve."""
