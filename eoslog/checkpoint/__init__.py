"""`eoslog checkpoint`: shows, checks and edits Spark's checkpoint of a query, with the rows that each edit
costs."""

from eoslog.checkpoint.restore import Restored, restore_checkpoint

__all__ = ["Restored", "restore_checkpoint"]
