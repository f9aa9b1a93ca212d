"""Spark's checkpoint of a query, and what a start compares with it."""
