"""Options of authentication and authorization."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SecurityOptions:
    """Who may connect, and who may do what."""
