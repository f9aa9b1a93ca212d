"""Opens the data directory and its logs, and closes them: topic registry, leftovers, orderly shutdown."""
