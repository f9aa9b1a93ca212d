"""A partition: append, read, delete and compact; its segments as one log."""
