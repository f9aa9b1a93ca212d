"""`format("eoslog")`: which reader or writer Spark gets for which call.

Spark asks in six kinds of Python processes, which are started for each query: each imports what it needs
when it is asked, and no more.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from eoslog.connector.spark.brought import reduce_with_jar
from eoslog.connector.spark.plain_errors import plainly


class EoslogDataSource(DataSource):
    """A Kafka log as Spark's source and sink, with the options and columns of Spark's Kafka connector."""

    __reduce_ex__ = reduce_with_jar

    @classmethod
    def name(cls) -> str:
        """The name given to format()."""
        return "eoslog"

    @plainly
    def schema(self) -> StructType:
        """The columns of a read; headers among them with includeHeaders. Spark asks at load(): the earliest
        moment at which a wrong option of a source can be said. Raises OptionError."""
        from eoslog.connector.options.source_options import check_source_options
        from eoslog.connector.spark.columns import source_schema

        check_source_options(self.options)
        return source_schema(str(self.options.get("includeHeaders", "false")).strip().lower() == "true")

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises OptionError, SchemaError."""
        from eoslog.connector.options.source_options import source_options
        from eoslog.connector.source.reader import BatchReader
        from eoslog.connector.spark.columns import check_source_schema

        options = source_options(self.options, stream=False)
        check_source_schema(schema, options.headers)
        return BatchReader(options)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read. Raises OptionError, SchemaError."""
        from eoslog.connector.options.source_options import source_options
        from eoslog.connector.source.reader import stream_reader
        from eoslog.connector.spark.calls import outlive_interrupts
        from eoslog.connector.spark.columns import check_source_schema

        outlive_interrupts()
        options = source_options(self.options, stream=True)
        check_source_schema(schema, options.headers)
        return stream_reader(options)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write. Raises OptionError, SchemaError."""
        from eoslog.connector.options.sink_options import sink_options
        from eoslog.connector.sink.batch_writer import BatchWriter

        return BatchWriter(sink_options(self.options, stream=False), schema, overwrite)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write; `overwrite` is Spark's word for outputMode("complete").

        As with Spark's Kafka sink, the whole result is then added to the log at each micro-batch. Raises
        OptionError, SchemaError.
        """
        from eoslog.connector.options.sink_options import sink_options
        from eoslog.connector.sink.stream_writer import StreamWriter

        return StreamWriter(sink_options(self.options, stream=True), schema)
