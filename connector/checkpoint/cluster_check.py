"""Compares the clusters of a query's checkpoint, source and sink. Pure rules; offsets of one cluster mean
nothing in another."""

from collections.abc import Collection, Iterable

from eoslog.connector.checkpoint.accepted_differences import to_accept
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
        f"cluster {now}: offsets of one mean nothing in the other. Correct kafka.bootstrap.servers; or begin "
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
        f"are, and kafka.bootstrap.servers leads to the cluster {now}. Correct kafka.bootstrap.servers; or "
        "begin with a new checkpoint; or, if the last batch is complete on the old one, set "
        f"{to_accept(word, accepted)}"
    )
