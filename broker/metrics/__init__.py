"""What the broker counts, and the page that shows it."""
