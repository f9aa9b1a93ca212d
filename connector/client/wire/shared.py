"""Clusters that outlive a task or a batch: Spark reuses Python processes, and connections are worth it."""

import os
import threading

from eoslog.connector.client.wire.cluster import Cluster
from eoslog.connector.client.wire.config import ClientConfig

_clusters: dict[tuple[int, int, ClientConfig], Cluster] = {}


def shared_cluster(config: ClientConfig) -> Cluster:
    """This thread's cluster for `config`, made at the first call.

    A cluster is for one thread. And processes are forked: a child that found its parent's sockets would talk
    over the same connection, so the process id is part of the key.
    """
    key = (os.getpid(), threading.get_ident(), config)
    cluster = _clusters.get(key)
    if cluster is None:
        cluster = _clusters[key] = Cluster(config)
    return cluster


def close_shared(config: ClientConfig) -> None:
    """Close this thread's cluster for `config`, if there is one."""
    cluster = _clusters.pop((os.getpid(), threading.get_ident(), config), None)
    if cluster is not None:
        cluster.close()
