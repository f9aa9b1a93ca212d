"""A request on its way to its handler, and what a handler may return."""
