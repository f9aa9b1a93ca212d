"""A topic of a fan-out: each batch is one batch write with a token (docs/exactly-once.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eoslog.client.wire.config import BOOTSTRAP_OPTION
from eoslog.connector.options.parsing import SERVERS_VARIABLE, of_environment
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.sink.committer import runner_for
from eoslog.connector.sink.token_begin import written_by
from eoslog.errors import OptionError
from eoslog.fanout.rows import SparkRows
from eoslog.fanout.rules import Batch, check_topic, other_rows_in
from eoslog.fanout.table import Transform

_OURS = ("topic", "write.token", "checkpointLocation", "processing.guarantee")


@dataclass
class TopicTarget:
    """A topic, with the options of `format("eoslog")`."""

    name: str
    options: Mapping[str, str]
    transform: Transform | None

    @property
    def place(self) -> str:
        """Its name in messages."""
        return f"topic {self.name}"

    def has(self, batch: Batch) -> bool:
        """Whether the batch's token is written."""
        return has({**self.options, "topic": self.name}, batch)

    def write(self, rows: SparkRows, batch: Batch, *, other_rows: bool) -> None:
        """Write the batch, or see that the token has written the same rows."""
        writer = rows.frame.write.format("eoslog").mode("append").options(**self.options)
        writer = writer.option("topic", self.name).option("write.token", batch.token)
        try:
            writer.save()
        except Exception as error:
            if "TokenReused" not in str(error):
                raise
            if not other_rows:
                raise other_rows_in(self.place, batch) from error


def has(options: Mapping[str, str], batch: Batch) -> bool:
    """Whether the batch's token is written to the topic that these options of `format("eoslog")` name.

    Raises FanoutStopped if another query wrote it."""
    given = sink_options({**options, "write.token": batch.token}, stream=False)
    by = written_by(given, batch.token, runner_for(given))
    check_topic(f"topic {options['topic']}", by, batch)
    return by is not None


def topic(name: str, options: Mapping[str, str], transform: Transform | None = None) -> TopicTarget:
    """A topic. `options`: those of `format("eoslog")`, at least kafka.bootstrap.servers. `transform` makes
    the columns key and value (and headers, partition). Raises OptionError.
    """
    if not isinstance(name, str) or not name:
        raise OptionError(f"topic({name!r}): name a topic")
    set_here = sorted(set(_OURS) & set(options))
    if set_here:
        raise OptionError(
            f"topic({name!r}): the fan-out sets {', '.join(set_here)} by itself: leave them out"
        )
    if BOOTSTRAP_OPTION not in {*options, *of_environment()[0]}:
        raise OptionError(
            f"topic({name!r}): the option {BOOTSTRAP_OPTION} is missing, and {SERVERS_VARIABLE}"
        )
    return TopicTarget(name, dict(options), transform)
