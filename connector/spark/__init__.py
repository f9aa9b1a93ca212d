"""What Spark's Python processes are like: calls, errors, logs, sockets, columns, and what outlives a call."""
