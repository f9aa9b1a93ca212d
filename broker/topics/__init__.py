"""Topics and their partitions: creates, finds, changes and deletes them in steps that survive a crash."""
