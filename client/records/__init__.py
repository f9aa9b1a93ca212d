"""Record batches on the wire: produced in order, fetched a range at a time."""
