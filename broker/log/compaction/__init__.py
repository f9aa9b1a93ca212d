"""Compaction: which records of a key stay, and the segments written without the others."""
