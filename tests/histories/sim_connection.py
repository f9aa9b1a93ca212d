"""What stands in for a connection: bodies go to a cluster in memory, and a history may strike between two."""

from collections import deque
from typing import Any, ClassVar, cast

from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.connection import BrokerConnection
from eoslog.errors import BrokerUnreachable, ConnectionLost
from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.schema import Message
from tests.histories.sim_cluster import SimCluster


class Killed(BaseException):
    """The process died here (SIGKILL): nothing of what comes later in it is done."""


class Process:
    """A process that can be struck at its next steps."""

    dead = False

    def before(self, what: str) -> None:
        """A request is about to be sent."""

    def after(self, what: str) -> None:
        """Its answer is there, and not read yet."""


class Network:
    """Who runs now, and the clusters by host name."""

    clusters: ClassVar[dict[str, SimCluster]] = {}
    process: Process = Process()


def _whole(api: Api, answer: Any, version: int) -> Message:
    """The answer as it is read: with every field."""
    message, _ = api.response.read(version, b"".join(api.response.write(version, answer)))
    return dict(message)


class SimConnection:
    """As client.connection.Connection, whose rules for versions it uses."""

    ask = BrokerConnection.ask
    call = BrokerConnection.call

    def __init__(self, host: str, port: int, config: ClientConfig, *, timeout_ms: int | None = None) -> None:
        self.host, self.port, self.config = host, port, config
        self._pending: deque[Message] = deque()
        self._cluster = Network.clusters.get(host)
        self._open = True
        if Network.process.dead:
            raise Killed
        if self._cluster is None:
            raise BrokerUnreachable(f"{host}:{port}: nobody listens there")
        self.versions, self._life = self._cluster.versions(), self._cluster.life
        self.features = {"transaction.version": self._cluster.tv}
        self.ends_together = self._cluster.keeps  # the bundled broker has both, Apache Kafka neither

    def pick(self, api: ApiKey, *, max_version: int | None = None, min_version: int = 0) -> int:
        """The rules of the real one."""
        real = cast(BrokerConnection, self)
        return BrokerConnection.pick(real, api, max_version=max_version, min_version=min_version)

    @property
    def closed(self) -> bool:
        return not self._open

    @property
    def waiting(self) -> int:
        return len(self._pending)

    @property
    def ended(self) -> bool:
        return self._open and self._cluster is not None and self._life != self._cluster.life

    def close(self) -> None:
        self._open = False

    def send(self, api: ApiKey, body: Message, version: int | None = None, *, answered: bool = True) -> int:
        process, cluster = Network.process, self._cluster
        if process.dead:
            raise Killed
        assert cluster is not None
        if not self._open or self._life != cluster.life:
            self._open = False
            raise ConnectionLost(f"connection to {self.host}:{self.port} lost: the broker has ended it")
        process.before(api.name)
        version = self.pick(api) if version is None else version
        answer = cluster.answer(api, body, version)
        process.after(api.name)
        self._pending.append(_whole(APIS[api], answer, version))
        return 0

    def receive(self, timeout_ms: float | None = None) -> Message:
        return self._pending.popleft()

    def answer(self, api: Api, timeout_ms: float | None = None) -> Any:
        return self.receive(timeout_ms)
