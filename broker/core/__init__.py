"""The broker as a whole: opens its parts in order, runs periodic tasks, closes the parts in reverse order."""
