"""A table as an audit sees it: files of rows, in one version, and which column holds which part of a record.

`location` parses what --to names, and opens it as `files`: `parquet` (with `spark_log`), `delta` or
`iceberg`, all of which read by `parquet_file`. `columns` chooses columns.
"""
