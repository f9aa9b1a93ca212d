"""The columns of the source and of the sink, which are those of Spark's Kafka connector. The sink ignores
other columns.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eoslog.errors import SchemaError

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_SOURCE = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)


def source_schema(headers: bool) -> StructType:
    """The source's schema; `headers` adds the column headers: array<struct<key, value>>."""
    extra = (StructField("headers", _HEADERS),) if headers else ()
    return StructType([*_SOURCE, *extra])


def check_source_schema(given: StructType, headers: bool) -> None:
    """Check a schema that a user gave. Raises SchemaError if it is not the source's own."""
    own = source_schema(headers)
    if [(f.name, f.dataType) for f in given.fields] != [(f.name, f.dataType) for f in own.fields]:
        raise SchemaError(
            f"the source has a fixed schema, {own.simpleString()}, not {given.simpleString()}: "
            "leave out .schema(...) and select and cast afterwards"
        )


SINK_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "value": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "headers": (_HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "deadletter": (StringType(),),
}
"""The sink's columns, and the types that each may have."""


def check_sink_schema(schema: StructType, topic: str | None, dead: str | None) -> None:
    """Check a DataFrame's columns. Raises SchemaError if it cannot be written. `topic`, `dead`: the options
    topic and deadletter.topic."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        near = [name for name in types if name.lower() == "value"]
        hint = (
            f"rename {near[0]!r} to 'value'"
            if near
            else "name the column with the data: df.select(... .alias('value'))"
        )
        raise SchemaError(f"the rows have no column 'value', but {', '.join(types) or 'none at all'}: {hint}")
    if topic is None and "topic" not in types:
        raise SchemaError("where should the rows go? Give the option topic, or a column 'topic'")
    if dead is None and "deadletter" in types:
        raise SchemaError(
            "the column 'deadletter' says which rows must not be written, and the option deadletter.topic is "
            "not given: give it, or drop the column"
        )
    for name, allowed in SINK_COLUMNS.items():
        if name in types and not any(_same(types[name], kind) for kind in allowed):
            wanted = " or ".join(kind.simpleString() for kind in allowed)
            raise SchemaError(f"column {name!r} is {types[name].simpleString()}: cast it to {wanted}")


def _same(given: DataType, wanted: DataType) -> bool:
    """Whether types are equal except for nullability and collation, which do not affect the bytes."""
    return given.simpleString() == wanted.simpleString() or (
        isinstance(given, StringType) and isinstance(wanted, StringType)
    )
