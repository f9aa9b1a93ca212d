"""A Kafka client of blocking sockets with pipelining: routing, transactions, produce, fetch.

Every wait is bounded by a time-out named in `config.ClientConfig`. Nothing here is thread-safe: a
thread that wants to talk to brokers makes a `Cluster` of its own.
"""
