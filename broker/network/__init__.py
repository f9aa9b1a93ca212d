"""From sockets to handlers and back: listeners, connections, answers in order, requests in steps."""
