"""A Kafka client on blocking sockets with pipelining: routing, transactions, produce, fetch.

Every wait is bounded by a time-out of `config.ClientConfig`. Nothing here is thread-safe: each thread that
talks to brokers makes its own `Cluster`.
"""
