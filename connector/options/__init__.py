"""Options of the data source: one table, how values are read, what is refused, and two typed objects."""
