"""Reads Spark's checkpoint of a query, and compares it with sink, group and cluster at the query's start."""
