"""`eoslog checkpoint`: shows, checks and edits Spark's checkpoint of a query, with the rows that each edit
costs."""
