"""The rules of groups of the classic protocol."""
