"""A table as an audit sees it: files of rows, in one version, and which column holds which part of a record.

`files` says what all of them have: `parquet`, which reads the folder's log of Spark, too, `delta`
or `iceberg`, which read files as `parquet` does, and `postgres`. `columns` chooses columns.
"""
