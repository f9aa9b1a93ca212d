"""Compares the clusters of a query's checkpoint, source and sink. Pure rules; offsets of one cluster mean
nothing in another."""

from collections.abc import Collection, Iterable

from eoslog.connector.checkpoint.accepted_differences import to_accept
from eoslog.connector.commit.task_reports import Batch
from eoslog.errors import WrongCluster


def check_cluster(then: str | None, now: str | None, moved_to: str | None = None) -> bool:
    """Whether the query has moved from cluster `then` to cluster `now`. An unknown id counts as the same.

    Raises WrongCluster if it has, unless option cluster.moved.to (`moved_to`) names the new cluster.
    """
    if then is None or now is None or then == now:
        return False
    if moved_to == now:
        return True
    raise WrongCluster(
        f"the checkpoint's offsets are of the cluster {then}, and kafka.bootstrap.servers leads to the "
        f"cluster {now}: offsets of one mean nothing in the other. Correct kafka.bootstrap.servers. Or, if "
        "the topics were copied and the old cluster answers, give eoslog checkpoint move-cluster. Or begin "
        "with a new checkpoint and startingOffsets; or, if the topics were moved with their offsets as they "
        f"are, set cluster.moved.to={now}"
    )


def check_group_cluster(sources: Iterable[str], sink: str | None, group: str) -> None:
    """Raise WrongCluster unless the sources are on the sink's cluster, where their offsets are committed."""
    others = sorted(set(sources) - {sink}) if sink is not None else []
    if others:
        raise WrongCluster(
            f"kafka.group.id={group}: the sink would commit source offsets of the cluster "
            f"{', '.join(others)} to a group of the cluster {sink}, where they mean nothing. Leave "
            "kafka.group.id out of the sink's options if source and sink are on two clusters; or correct "
            "kafka.bootstrap.servers"
        )


def check_sink_cluster(then: str | None, now: str | None, sink: str, accepted: Collection[str]) -> bool:
    """Whether the sink has moved from cluster `then`, which got the checkpoint's batches, to cluster `now`.
    An unknown id counts as the same. Raises WrongCluster if it has, unless that is accepted."""
    if then is None or now is None or then == now:
        return False
    if (word := f"cluster:{now}") in accepted:
        return True
    raise WrongCluster(
        f"sink {sink}: the checkpoint's batches were written to the cluster {then}, where their decisions "
        f"are, and kafka.bootstrap.servers leads to the cluster {now}. Correct kafka.bootstrap.servers. Or, "
        "while the old one answers, give eoslog checkpoint move-cluster, which looks there. Or begin with a "
        "new checkpoint; or, if this checkpoint is the newest one, and its last batch is complete on the old "
        f"cluster and noted by Spark as done, set {to_accept(word, accepted)}"
    )


def check_done_there(sink: str, batch: Batch, noted: int, accepted: Collection[str]) -> bool:
    """Whether a batch that runs now, after the sink has moved to another cluster, was written on the old one:
    then its rows are not written again. `noted`: the newest batch that it was about to decide there. Raises
    WrongCluster unless it is known or accepted."""
    if noted < batch.batch_id:
        return False
    written, missing = (f"batch-{word}:{batch.query_id}:{batch.batch_id}" for word in ("written", "missing"))
    if written in accepted:
        return True
    if missing in accepted:
        return False
    raise WrongCluster(
        f"sink {sink}: {batch} runs again on another cluster, and it may be complete on the one that had the "
        "checkpoint's batches: Spark has not noted it as done. Nothing was written. Start the query once "
        "where it was: it finishes the batch. If that is not possible, look for the batch's rows here. If "
        f"all are here, set {to_accept(written, accepted)}, and the query goes on behind them. If none are, "
        f"set {to_accept(missing, accepted)}, and they are written"
    )
