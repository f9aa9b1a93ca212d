"""README's thousand orders, copied by the program of a page: some rows at its kill, all at its end."""

from pathlib import Path

from tests.connector.brokers import Kafka

ADDRESS = "127.0.0.1:9092"
"""The broker's, on the pages."""
PARTITIONS = 2


class Orders:
    """The topics `orders` and `orders_upper`."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._rows = [b"order %d" % number for number in range(1000)]
        for topic in ("orders", "orders_upper"):
            kafka.topic(PARTITIONS, topic)
        for partition in range(PARTITIONS):
            kafka.put("orders", self._rows[partition::PARTITIONS], partition=partition)

    def write(self, path: Path, code: str) -> None:
        """A block of a page as a file, with this broker's address."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code.replace(ADDRESS, self._kafka.bootstrap))

    def check_some_are_copied(self) -> None:
        """The copy is in the middle of its work."""
        assert 0 < len(self._copied()) < len(self._rows)

    def check_none_are_copied(self) -> None:
        """The copy has not begun."""
        assert not self._copied()

    def check_all_are_copied(self, times: int = 1) -> None:
        """Every row is there once, or so many times."""
        copied = self._copied()
        wanted = sorted([row.upper() for row in self._rows] * times)
        assert copied == wanted, f"{len(copied)} rows, {len(set(copied))} different ones"

    def _copied(self) -> list[bytes]:
        return sorted(row[3] for row in self._kafka.rows("orders_upper", PARTITIONS))
