"""Offsets by topic and partition: Spark's JSON, plans of batches, notes beside them in a group."""
