"""Removes what a rehearsal has made, and tells what it could not remove. Touches no other name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from eoslog.client.admin import groups, transaction_states, transactions
from eoslog.client.admin.topics import delete_topics
from eoslog.client.wire.cluster import Cluster
from eoslog.errors import EoslogError
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import ProtocolError
from eoslog.rehearse.time_out import TIMEOUT_MS
from eoslog.rehearse.work import ScratchNames

_ROUNDS = 3
"""How often topics are looked for: a request to create them may have been on its way."""
_GONE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@dataclass
class CleanUp:
    """What has been removed (by kind), what is left and why, and what is yet to be done."""

    removed: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    ids: int = 0
    """Transactional ids that stay, with nothing open."""
    to_do: list[str] = field(default_factory=lambda: ["open transactions", "topics", "groups"])

    def run(self, cluster: Cluster, names: ScratchNames, topics: Sequence[str]) -> None:
        """Remove all of it. Raises nothing but KeyboardInterrupt: then `to_do` tells what was not begun or
        not finished."""
        steps: dict[str, Callable[[Cluster, ScratchNames, Sequence[str]], None]] = {
            "open transactions": self._end_transactions,
            "groups": self._delete_groups,
            "topics": self._delete_topics,
        }
        for kind in tuple(self.to_do):
            self._tried(f"{kind} {names.name('*')}", partial(steps[kind], cluster, names, topics))
            self.to_do.remove(kind)

    def _tried(self, what: str, attempt: Callable[[], None]) -> bool:
        try:
            attempt()
        except KafkaError as error:
            if error.code in _GONE:
                return False
            self.left.append(f"{what}: {error}")
            return False
        except (EoslogError, ProtocolError) as error:
            self.left.append(f"{what}: {error}")
            return False
        return True

    def _each(self, kind: str, found: Iterable[str], remove: Callable[[str], None]) -> None:
        for name in found:
            if self._tried(f"{kind} {name}", partial(remove, name)):
                self.removed[kind] = self.removed.get(kind, 0) + 1

    def _end_transactions(self, cluster: Cluster, names: ScratchNames, _: Sequence[str]) -> None:
        prefix = names.name("")
        found = [
            one.transactional_id for one in transaction_states.list_transactions(cluster, prefix, ["Ongoing"])
        ]
        self._each("open transaction", map(names.check, found), partial(_abort, cluster))
        self.ids = len(transaction_states.list_transactions(cluster, prefix))

    def _delete_groups(self, cluster: Cluster, names: ScratchNames, _: Sequence[str]) -> None:
        found = [one.group for one in groups.list_groups(cluster) if one.group.startswith(names.name(""))]
        self._each("group", map(names.check, found), partial(groups.delete_group, cluster))

    def _delete_topics(self, cluster: Cluster, names: ScratchNames, topics: Sequence[str]) -> None:
        left: dict[str, str] = {}
        for _ in range(_ROUNDS):
            try:
                found = list(cluster.metadata(topics).topics)
            except (EoslogError, KafkaError, ProtocolError) as error:
                left |= dict.fromkeys(topics, str(error))
                break
            there = [names.check(name) for name in found if name not in left]
            if not there:
                break
            left |= self._delete(cluster, there)
        self.left += [f"topic {name}: {why}" for name, why in left.items()]

    def _delete(self, cluster: Cluster, topics: Sequence[str]) -> dict[str, str]:
        """Delete topics in one request. Returns why some were not."""
        try:
            codes = {done["name"] or "": done["error_code"] for done in delete_topics(cluster, topics)}
        except (EoslogError, KafkaError, ProtocolError) as error:
            return dict.fromkeys(topics, str(error))
        done = [name for name, code in codes.items() if not code]
        self.removed["topic"] = self.removed.get("topic", 0) + len(done)
        failed = {name: KafkaError(code) for name, code in codes.items() if code}
        return {name: str(error) for name, error in failed.items() if error.code not in _GONE}


def _abort(cluster: Cluster, name: str) -> None:
    transactions.init_producer_id(cluster, name, TIMEOUT_MS)
