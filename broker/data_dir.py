"""The data directory: one broker at a time in it, and the identity that it carries.

`.lock` is held with flock as long as the process lives, as Kafka does it, so a killed broker leaves none
behind. `meta.properties` names the cluster and the node in Kafka's format (version 1).
"""

from __future__ import annotations

import base64
import os
import uuid

from eoslog.broker.ports import File, FileSystem

LOCK = ".lock"
META = "meta.properties"


class StartError(Exception):
    """The broker cannot start; the text says why and what to do."""


def take(fs: FileSystem, path: str) -> File:
    """Make the directory if need be and lock it; the lock ends with the returned file. Raises StartError."""
    try:
        fs.make_dir(path)
        return fs.lock(os.path.join(path, LOCK))
    except BlockingIOError as error:
        raise StartError(
            f"data directory {path} is in use by another broker: stop that one or give another --data"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartError(
            f"data directory {path} cannot be written ({reason}): mend that or give another --data"
        ) from error


def cluster_id(fs: FileSystem, path: str, node_id: int) -> str:
    """The cluster's id, made on first use. Raises StartError if the directory belongs to another node."""
    place = os.path.join(path, META)
    if not fs.exists(place):
        return _found(fs, path, node_id)
    file = fs.open(place)
    try:
        text = file.read(file.size(), 0).decode("utf-8", "replace")
    finally:
        file.close()
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    found = {name.strip(): value.strip() for name, _, value in lines}
    if not found.get("cluster.id") or found.get("node.id") != str(node_id):
        raise StartError(
            f"{place} belongs to node {found.get('node.id')} of cluster {found.get('cluster.id')},"
            f" not to node {node_id}: give another --data, or --config node.id=..."
        )
    return found["cluster.id"]


def _found(fs: FileSystem, path: str, node_id: int) -> str:
    new = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    place = os.path.join(path, META)
    text = f"version=1\ncluster.id={new}\nnode.id={node_id}\n"
    file = fs.open(place + ".tmp", create=True)
    try:
        file.truncate(0)
        file.write([text.encode()], 0)
        file.sync()
    finally:
        file.close()
    fs.rename(place + ".tmp", place)
    fs.sync_dir(path)
    return new
