"""The version: what every room may ask for, and no more of the package above it."""

__version__ = "0.1.0"
