"""Keeps one client from slowing the others down: memory limits, turns, garbage collection."""
