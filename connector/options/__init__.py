"""Options of the data source: one table, its values, what is refused, and two typed objects of them."""
