"""From a data directory to open logs, and back: the registry of topics, leftovers, the orderly end."""
