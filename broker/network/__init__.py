"""Between sockets and handlers: listeners, connections and their rules, large requests in steps."""
