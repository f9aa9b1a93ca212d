"""How Spark's Python processes behave: calls, errors, logs, sockets, columns, and what outlives a call."""
