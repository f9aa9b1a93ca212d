"""Options of producer ids and transactions."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.config.config_def import option


@dataclass(frozen=True)
class TransactionOptions:
    """The options of the transaction coordinator and of producer states."""

    transaction_log_partitions: int = option(
        4,
        "transaction.state.log.num.partitions",
        "partitions of __transaction_state, fixed at first use",
        low=1,
    )
    transaction_max_timeout_ms: int = option(
        900_000, "transaction.max.timeout.ms", "longest transaction time-out a client may ask for", low=1
    )
    transaction_abort_interval_ms: int = option(
        10_000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "how often to look for timed-out transactions",
        low=1,
    )
    transactional_id_expiration_ms: int = option(
        604_800_000,
        "transactional.id.expiration.ms",
        "idle time after which a transactional id is removed",
        low=1,
    )
    transactional_id_cleanup_interval_ms: int = option(
        3_600_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "how often to look for idle transactional ids",
        low=1,
    )
    two_phase_commit: bool = option(
        True,
        "transaction.two.phase.commit.enable",
        "whether producers may ask for transactions that never time out (KIP-939); Kafka's default is false",
    )
    producer_id_expiration_ms: int = option(
        86_400_000,
        "producer.id.expiration.ms",
        "idle time after which a producer id is removed",
        low=1,
        dynamic=True,
    )
    producer_id_check_interval_ms: int = option(
        600_000,
        "producer.id.expiration.check.interval.ms",
        "how often to look for idle producer ids",
        low=1,
    )
