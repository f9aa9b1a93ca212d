"""A table as an audit sees it: files of rows, in one version, and which column holds which part of a record.

`location` parses what --to names, and opens it: `parquet` (with `spark_log`) as `files`; `columns` chooses
columns.
"""
