"""Which APIs a query needs, in which versions, on every broker."""

from __future__ import annotations

from eoslog.client.admin.transactions import TV2
from eoslog.client.wire.cluster import Cluster
from eoslog.errors import UnsupportedByBroker
from eoslog.protocol.apis import ApiKey
from eoslog.rehearse.rows import DoesNotHold

NEEDED = {
    ApiKey.METADATA: 0,
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.FETCH: 4,
    ApiKey.PRODUCE: 3,
    ApiKey.INIT_PRODUCER_ID: 3,
    ApiKey.ADD_PARTITIONS_TO_TXN: 0,
    ApiKey.ADD_OFFSETS_TO_TXN: 0,
    ApiKey.TXN_OFFSET_COMMIT: 0,
    ApiKey.END_TXN: 0,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.OFFSET_COMMIT: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
}
"""The lowest version of each API that the sink and the source need."""
_OF_TV2 = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5}
"""The same under transaction.version 2 (KIP-890)."""


def check_versions(cluster: Cluster) -> str:
    """Ask every broker. Raises DoesNotHold if one does not serve what is needed."""
    wrong = []
    brokers, level = cluster.brokers(), cluster.transaction_version()
    for broker in brokers:
        for api, version in (NEEDED | (_OF_TV2 if level >= TV2 else {})).items():
            try:
                broker.pick(api, min_version=version)
            except UnsupportedByBroker as error:
                wrong.append(str(error))
    if wrong:
        raise DoesNotHold(f"{len(wrong)} are missing", *wrong)
    count = f"{len(brokers)} broker{'s serve' if len(brokers) > 1 else ' serves'}"
    return f"{count} all {len(NEEDED)} APIs that a query needs; transaction.version {level}"
