"""A partition: append, read, delete, compact; its segments as one log."""
