"""Compaction: decides which records of a key stay, and writes segments without the others."""
