"""The sink: a committer on the driver, writers in the tasks."""
