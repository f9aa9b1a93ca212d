"""Connections to brokers, routing and retries: one request and its answer."""
