"""`eoslog audit`: checks that another topic, or a table, has each record of one topic exactly once.

The steps (docs/audit.md): `bounds` fixes what is audited; `read` turns records into rows of digests
(`digest`, `identity`); `spill` stores these on disk in buckets that fit into memory; `match` compares a
bucket; `order` checks the sequence; `findings` counts, and keeps the first few of each kind; `run` joins
them. `digest`, `identity`, `match` and `order` are pure.

Rows of a table (`table/`) that name their partition and offset are numbered (`lines`) and compared by these
numbers: `table_judge`, `table_findings`, joined by `table_run`. `lines` and `table_judge` are pure.
"""
