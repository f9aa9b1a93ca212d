"""The version. Every package may import this, and no more of the package above it."""

__version__ = "0.1.0"
