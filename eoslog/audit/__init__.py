"""`eoslog audit`: whether each record of one topic stands in another exactly once, and in order.

How it goes (docs/audit.md): `bounds` fixes what is audited, `read` turns records into rows of digests
(`digest`, `identity`), `spill` keeps these on disk in buckets that fit into memory, `match` judges a bucket,
`order` judges the sequence, `findings` counts and keeps the first few of each kind, `run` joins them.
`digest`, `identity`, `match` and `order` are pure.
"""
