"""`eoslog audit`: checks that another topic, or a table, has each record of one topic exactly once.

The steps (docs/audit.md): `bounds` fixes what is audited; `read` turns records into rows of digests
(`digest`, `identity`); `spill` stores these on disk in buckets that fit into memory, and has each judged:
`match` by identity, or `lines` by partition and offset, for tables (`table/`) whose rows name them; `order`
checks the sequence; `findings` has the kinds, counts, and keeps the first few of each; `run` joins them.
`digest`, `identity`, `match` and `lines` are pure. `eoslog shadow` compares by `spill`, too.
"""
