"""eoslog.broker: a Kafka-compatible broker on a single node; its log loses nothing that was acknowledged.

`network/` brings requests to `handlers/`; these use `topics` and `log/` for data
and `coordinator/` for transactions and groups, whose rules are pure and in `rules/`.
"""
