"""Offsets by topic and partition: Spark's JSON, plans of batches, notes with a group's offsets."""
