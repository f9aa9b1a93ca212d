"""What can be told of a streaming sink when its query starts, before Spark has a batch for it.

Spark comes to a sink with a batch. A query without new rows would run beside a wrong option, or beside
another cluster than it wrote to before, and nobody would know. But Spark makes the data source at start()
with the sink's options: among them checkpointLocation, which tells a streaming sink from all else.
"""

from collections.abc import Mapping

from eoslog.connector.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint_sink import GivenTo
from eoslog.connector.options import sink_options
from eoslog.connector.which_cluster import check_sink_cluster


def look(raw: Mapping[str, str]) -> None:
    """Of a streaming sink's options. Raises OptionError; and WrongCluster or BrokerUnreachable, where the
    checkpoint's batches went to a sink before. A checkpoint that cannot be read is left to the first batch,
    which says so."""
    options = sink_options(raw, stream=True)
    assert options.checkpoint_location is not None
    try:
        given = GivenTo.read(Checkpoint.at(options.checkpoint_location))
    except CheckpointUnreadable:
        return
    if given is None or given.sink is None or given.cluster is None:
        return
    from eoslog.connector.driver import shared_cluster  # a query's first start needs neither
    from eoslog.connector.start_of_run import cluster_id

    now = cluster_id(shared_cluster(options.client))
    check_sink_cluster(given.cluster, now, given.sink, options.accepted)
