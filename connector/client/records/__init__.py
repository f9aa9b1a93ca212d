"""Record batches on their way: produced in order, fetched a range at a time."""
