"""Reads a log back after a crash or a disk failure, and finishes what was interrupted."""
