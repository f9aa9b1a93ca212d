"""The Spark side of eoslog: `format("eoslog")` and the Kafka client behind it.

Nothing here imports the broker; the connector talks to it over a socket, as to any Kafka.
"""
