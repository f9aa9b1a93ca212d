"""The source: a reader on the driver plans offsets, tasks read them."""
