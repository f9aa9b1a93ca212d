"""Clusters that outlive a task or a batch: Spark reuses Python processes, which can keep connections open."""

import os
import threading

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig

_clusters: dict[tuple[int, int, ClientConfig], Cluster] = {}


def shared_cluster(config: ClientConfig) -> Cluster:
    """This thread's cluster for `config`, created at the first call.

    A cluster is for one thread. The process id is part of the key, because processes are forked: a child that
    used its parent's sockets would share the connection with it.
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
