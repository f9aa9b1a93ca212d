"""Who may do what: which access each request needs, and what becomes of what is refused."""
