"""The module by which Spark finds `format("eoslog")`.

At its first use of a data source, Spark looks through the top-level modules named `pyspark_*` and registers
the class `DefaultSource` of each. If this fails, Spark logs the reason and continues without it.
"""

from eoslog.connector.spark.libraries import check_versions

check_versions()  # first: with an older Spark the next import fails, naming only a module of Spark

from eoslog.connector.data_source import EoslogDataSource as DefaultSource  # noqa: E402

__all__ = ["DefaultSource"]
