"""From sockets to handlers and back: listeners, connections and their rules, requests in steps."""
