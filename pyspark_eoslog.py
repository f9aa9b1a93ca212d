"""The module by which Spark finds `format("eoslog")`.

At its first use of a data source Spark looks through the top-level modules named `pyspark_*` and
registers the class `DefaultSource` of each. If this fails, Spark logs why and goes on without.
"""

from eoslog.connector.spark.libraries import check_versions

check_versions()  # before the next line, which an older Spark refuses with the name of a module of its own

from eoslog.connector.data_source import EoslogDataSource as DefaultSource  # noqa: E402

__all__ = ["DefaultSource"]
