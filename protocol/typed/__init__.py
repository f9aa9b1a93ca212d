"""The messages as types for mypy, and the APIs that are bound to them: made by `make typed`."""
