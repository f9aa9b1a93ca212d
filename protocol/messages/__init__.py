"""The messages as data: one file an API key, and the records of the coordinators' own topics."""
