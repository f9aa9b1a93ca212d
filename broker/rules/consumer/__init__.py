"""The rules of consumer groups (KIP-848), and when a group's offsets expire."""
