"""`eoslog.fanout`: each micro-batch in Delta, Iceberg and PostgreSQL tables and in topics, in each once.

Tasks write data files, or rows to a staging table; the driver commits them, with a mark that says which batch
of which query they are, in the same commit of the table (`delta`, `iceberg`, `postgres`). A topic gets the
batch as one write with a token (`topic`).
`rules` is pure: what a mark means for a batch. `batch` does a batch by these rules, `rows` is what runs in
tasks. docs/fanout.md
"""

from eoslog.fanout.batch import fanout, table_at
from eoslog.fanout.delta import delta
from eoslog.fanout.iceberg import iceberg
from eoslog.fanout.merge import Merge, debezium
from eoslog.fanout.postgres import postgres
from eoslog.fanout.rules import FanoutStopped
from eoslog.fanout.table import marked_ends
from eoslog.fanout.topic import topic

__all__ = [
    "FanoutStopped",
    "Merge",
    "debezium",
    "delta",
    "fanout",
    "iceberg",
    "marked_ends",
    "postgres",
    "table_at",
    "topic",
]
