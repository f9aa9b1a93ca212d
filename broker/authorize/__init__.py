"""Authorization: which access each request needs, and how refusals are answered."""
