"""A batch reader's pushFilters: whether this session and this Spark let filters be pushed down."""

from pyspark.sql.datasource import DataSourceReader, Filter

from eoslog.connector.source.pushed_filters import Pushed, push
from eoslog.connector.spark.versions import PLANS_EACH_SCAN


class PushFilters:
    """What Spark calls as the reader's method; it is none. Spark refuses to read with a class that has the
    method, unless the session has spark.sql.python.filterPushdown.enabled, which is false by default. It
    looks at the attribute `__func__`. Without the setting it calls no pushFilters, and the rows are the same.

    `pushed`: what the filters say, None if nothing is pushed down.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, wanted: str) -> None:
        """`wanted`: the option filter.push.down."""
        self._wanted = wanted
        self.pushed: Pushed | None = None

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Note the filters that are understood, and return those that Spark has to apply again."""
        if self._wanted == "false" or (self._wanted == "auto" and not PLANS_EACH_SCAN):
            return filters
        self.pushed, left = push(filters)
        return left
