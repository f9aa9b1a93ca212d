"""The broker as a whole: opens its parts in order, runs periodic tasks, closes the parts in reverse order."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from eoslog.broker import fairness
from eoslog.broker.config import BrokerConfig
from eoslog.broker.coordinator.groups.group_coordinator import GroupCoordinator
from eoslog.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from eoslog.broker.coordinator.transactions.transaction_journal import DamagedTransactionLog
from eoslog.broker.core.config_store import ConfigStore
from eoslog.broker.core.dynamic_options import DynamicOptions
from eoslog.broker.fairness import Memory, Turns
from eoslog.broker.log.backup import BACKUP_INTERVAL_MS, Backups
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.upkeep import (
    BUSY,
    BUSY_INTERVAL_MS,
    IDLE,
    REMOVE_INTERVAL_MS,
    RETURN_INTERVAL_MS,
    SCRUB_INTERVAL_MS,
    Cleaner,
    Scrubber,
    Upkeep,
)
from eoslog.broker.ports import Clock, FileSystem, OsFileSystem, SystemClock
from eoslog.broker.rules.fetch_session import FetchSessions
from eoslog.broker.security.listeners import listeners_of
from eoslog.broker.security.passwords import Credentials
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.broker.core.authorizer import Authorizer
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.security.sasl import SaslMechanisms
    from eoslog.protocol.typed import ApiVersionsResponseApiKeyDraft

logger = logging.getLogger(__name__)


class Broker:
    """What handlers reach through their context."""

    def __init__(
        self,
        config: BrokerConfig,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Take the data directory and recover its logs. Raises DataDirError and OSError."""
        self.config, self.node_id = config, config.network.node_id
        self.clock = clock or SystemClock()
        network, data_dir = config.network, config.storage.log_dirs
        self.memory = Memory(
            network.queued_max_request_bytes, network.queued_max_response_bytes, network.request_max_bytes
        )
        self.turns = Turns()
        fs = fs or OsFileSystem()
        self.announced: Callable[[], list[ApiVersionsResponseApiKeyDraft]] = list
        """The versions of each API as ApiVersions lists them; the server fills this in."""
        self.authorizer: Authorizer | None = None
        """Decides which principal may do what. None: everybody may do everything."""
        self.configs = ConfigStore(fs, data_dir)
        self.options = DynamicOptions(config, self.configs)
        self.flush = GroupFlush(config.storage.flush)
        self.topics = Topics.open(fs, data_dir, config, self.clock, self.flush)
        self.options.checks.append(self.topics.configs.check_defaults)
        self.options.followers.append(self.topics.configs.defaults_changed)
        self.configs.reserve = self.topics.reserve
        self.upkeep = Upkeep(
            self.topics.all_partitions, self.clock, lambda: fs.space(data_dir)[1], self.topics.reserve
        )
        self.cleaner = Cleaner(self.topics.fs, self.topics.all_partitions, self.clock, config)
        self.backups = Backups(self.topics.fs, data_dir, self.topics.all_partitions, self.clock)
        self.scrubber = Scrubber(self.topics.fs, self.topics.all_partitions, config)
        if config.security.authorizer:
            self.authorizer = _authorizer(fs, config)
        self.credentials = Credentials(fs, data_dir)
        self.sasl = _sasl(config, self.credentials)
        self.cluster_id = self.topics.cluster_id
        self.groups = GroupCoordinator(self.topics, self.clock, config)
        self.transactions = TransactionCoordinator(
            self.topics, self.clock, config, on_marker=self.groups.on_marker
        )
        self.groups.transactions = self.transactions
        self.groups.consumers.configs_of = self.group_configs
        # With ACLs every fetch must name its partitions, since each is authorized: no fetch sessions then.
        slots = 0 if config.security.authorizer else network.fetch_session_slots
        self.fetch_sessions = FetchSessions(slots, network.fetch_session_eviction_ms, _session_id)
        self._tasks: list[asyncio.Task[None]] = []

    def group_configs(self, group_id: str) -> dict[str, str]:
        """The configs that were set on one group (KIP-848). The broker's options apply to all others."""
        return self.configs.get("group", group_id)

    def start(self) -> None:
        """Rebuild the coordinators' state from their logs and start the periodic tasks; on the event loop."""
        self.flush.start()
        self.topics.beside = partial(asyncio.get_running_loop().run_in_executor, None)
        self.transactions.load()
        self.groups.load()
        groups, transactions = self.config.groups, self.config.transactions
        storage = self.config.storage
        periodic: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (transactions.transaction_abort_interval_ms, self.transactions.tick),
            (transactions.transactional_id_cleanup_interval_ms, self.transactions.forget_idle),
            (transactions.producer_id_check_interval_ms, self._expire_producers),
            (storage.checkpoint_interval_ms, self._checkpoint),
            (storage.retention_check_interval_ms, self.upkeep.retain),
            (REMOVE_INTERVAL_MS, self.upkeep.remove_files),
            (RETURN_INTERVAL_MS, partial(self.upkeep.bring_back, self._returned)),
            (BUSY_INTERVAL_MS, self._checkpoint_busy),
            (storage.cleaner_backoff_ms, self.cleaner.clean),
            (SCRUB_INTERVAL_MS, self.scrubber.scrub),
            (BACKUP_INTERVAL_MS, self.backups.look),
            (groups.offsets_retention_check_interval_ms, self.groups.expire),
        ]
        self._tasks = [asyncio.create_task(fairness.watch_garbage(lambda: self.turns.busy))]
        self._tasks += [asyncio.create_task(_every(interval_ms, job)) for interval_ms, job in periodic]

    def _returned(self, partition: Partition) -> None:
        """A partition is back online: the coordinators reload their state from it."""
        try:
            self.groups.read_again(partition)
            self.transactions.read_again(partition)
        except (DamagedTransactionLog, KafkaError) as error:
            partition.stay_offline(str(error))

    async def _expire_producers(self) -> None:
        self.topics.expire_producers()

    async def _checkpoint(self) -> None:
        await self.upkeep.save_progress(IDLE)
        self.topics.tick()

    async def _checkpoint_busy(self) -> None:
        if await self.upkeep.save_progress(BUSY):
            self.topics.tick()

    async def close(self) -> None:
        """Flush everything and mark the directory as cleanly closed. No request may still be running.

        Raises OSError if something could not be saved. The next start recovers it from the log.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cleaner.close()
        self.scrubber.close()
        self.groups.close()
        await self.flush.stop()
        await asyncio.sleep(self.topics.unsettled_ms / 1000)
        self.topics.close()


def _session_id() -> int:
    return 1 + secrets.randbelow(2**31 - 1)


def _authorizer(fs: FileSystem, config: BrokerConfig) -> Authorizer:
    from eoslog.broker.core.authorizer import Authorizer  # imported only where it is used

    security = config.security
    return Authorizer(
        fs, config.storage.log_dirs, super_users=security.super_users, open_without=security.allow_without_acl
    )


def _sasl(config: BrokerConfig, credentials: Credentials) -> SaslMechanisms | None:
    listeners = listeners_of(config)
    if not any(listener.sasl for listener in listeners):
        return None
    from eoslog.broker.security.sasl import SaslMechanisms

    return SaslMechanisms(listeners, config, credentials)


async def _every(interval_ms: int, action: Callable[[], Awaitable[None]]) -> None:
    """Run `action` at an interval, for ever. A failure is logged and does not stop the later runs."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await action()
        except Exception:
            logger.exception("a periodic task failed; it will run again in %d ms", interval_ms)
