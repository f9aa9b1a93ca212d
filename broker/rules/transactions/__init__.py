"""The rules of a transaction: its states, what ends it."""
