"""`eoslog shadow`: compares what a new version of a query writes with what the running one has written, and
lets it take over."""

from eoslog.shadow.live import TakenPlace, take_over_live

__all__ = ["TakenPlace", "take_over_live"]
