"""Background work: retention, compaction, scrubbing, bringing partitions back online, backups."""
