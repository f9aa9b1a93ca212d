"""The module by which Spark finds `format("eoslog")`.

At its first use of a data source Spark looks through the top-level modules named `pyspark_*` and
registers the class `DefaultSource` of each.
"""

from eoslog.connector.source import EoslogDataSource as DefaultSource

__all__ = ["DefaultSource"]
