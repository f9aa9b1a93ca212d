"""`format("eoslog")`: which reader or writer Spark gets for which call."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from eoslog.connector import rows
from eoslog.connector.options import sink_options, source_options
from eoslog.connector.reader import BatchReader, StreamReader


class EoslogDataSource(DataSource):
    """A Kafka log as Spark's source and sink, with the options and columns of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        """The name given to format()."""
        return "eoslog"

    def schema(self) -> StructType:
        """The columns of a read; headers among them with includeHeaders."""
        return rows.schema(str(self.options.get("includeHeaders", "false")).strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises OptionError, SchemaError."""
        options = source_options(self.options, stream=False)
        rows.check_schema(schema, options.headers)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read. Raises OptionError, SchemaError."""
        options = source_options(self.options, stream=True)
        rows.check_schema(schema, options.headers)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write. Raises OptionError, SchemaError."""
        from eoslog.connector.batch_writer import BatchWriter  # only sinks need the commit protocol

        return BatchWriter(sink_options(self.options, stream=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write; `overwrite` is Spark's word for outputMode("complete").

        As with Spark's Kafka sink, the whole result is then added to the log at each micro-batch. Raises
        OptionError, SchemaError.
        """
        from eoslog.connector.writer import StreamWriter  # only sinks need the commit protocol

        return StreamWriter(sink_options(self.options, stream=True), schema)
