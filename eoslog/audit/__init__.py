"""`eoslog audit`: checks that another topic has each record of one topic exactly once, and in order.

The steps (docs/audit.md): `bounds` fixes what is audited; `read` turns records into rows of digests
(`digest`, `identity`); `spill` stores these on disk in buckets that fit into memory; `match` compares a
bucket; `order` checks the sequence; `findings` counts, and keeps the first few of each kind; `run` joins
them. `digest`, `identity`, `match` and `order` are pure.
"""
