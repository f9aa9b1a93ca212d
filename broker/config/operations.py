"""Options of running the broker: its log, its metrics, its end."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.config.base import option

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


@dataclass(frozen=True)
class OperationsOptions:
    """What the broker says of itself, and how it ends."""

    logging_level: str = option(
        "info", "logging.level", "least severe lines that are written to standard error", choices=LEVELS
    )
    logging_format: str = option(
        "text", "logging.format", "text, or json: one object a line", choices=FORMATS
    )
    metrics_listen: str = option(
        "",
        "metrics.listen",
        "HOST:PORT that serves /metrics (Prometheus) and /healthz; empty: none, port 0: a free one",
    )
    shutdown_grace_ms: int = option(
        5_000, "shutdown.grace.ms", "how long begun requests may take to end after SIGTERM"
    )
