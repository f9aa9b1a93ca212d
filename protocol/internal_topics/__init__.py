"""What the records of the coordinators' own topics hold."""
