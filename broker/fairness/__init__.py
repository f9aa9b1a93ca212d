"""Nobody waits long for what another does: limits of memory, turns, garbage."""
