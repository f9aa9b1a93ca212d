"""Options of running the broker: its log, metrics, console and shutdown."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.config.config_def import option

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


@dataclass(frozen=True)
class OperationsOptions:
    """What the broker shows about itself, and how it stops."""

    logging_level: str = option(
        "info", "logging.level", "least severe lines that are written to standard error", choices=LEVELS
    )
    logging_format: str = option(
        "text", "logging.format", "text, or json: one object a line", choices=FORMATS
    )
    metrics_listen: str = option(
        "",
        "metrics.listen",
        "HOST:PORT that serves /metrics (Prometheus), /healthz and /readyz; empty: none, port 0: a free one",
    )
    console_listen: str = option(
        "", "console.listen", "HOST:PORT that serves the web console; empty: none, port 0: a free one"
    )
    console_writable: bool = option(
        False, "console.writable", "whether transactions may be aborted from the console"
    )
    console_listener: str = option(
        "",
        "console.listener",
        "the listener whose TLS and authentication the console uses; empty: the first one with SASL, else"
        " the first that asks for certificates, else one with TLS",
    )
    console_insecure: bool = option(
        False,
        "console.insecure",
        "allow a console that other machines can reach without authentication, or with passwords but no TLS",
    )
    shutdown_grace_ms: int = option(
        5_000, "shutdown.grace.ms", "how long requests that have begun may take to end after SIGTERM"
    )
