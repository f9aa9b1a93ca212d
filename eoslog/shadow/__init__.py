"""`eoslog shadow`: compares what a new version of a query writes with what the running one has written."""
