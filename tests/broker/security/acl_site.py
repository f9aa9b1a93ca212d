"""A broker with ACLs on, users with passwords, and its administrator."""

from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from eoslog.protocol.apis import ApiKey
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire
from tests.broker.security.securitykit import ADMIN, SECRET, STANDARD, free_ports, plain_jaas

USERS = ("alice", "bob", "carol")


class Site:
    """A broker with ACLs on, users with passwords, and its administrator."""

    def __init__(self, data: Path | None = None, /, log_level: str = "error", **config: str) -> None:
        (self.port,) = free_ports(1)
        passwords = {name: f"{name}-password" for name in USERS} | {ADMIN: SECRET}
        self.broker = EmbeddedBroker(
            data,
            config={
                "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{self.port}",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(**passwords),
                "authorizer.class.name": STANDARD,
                "super.users": f"User:{ADMIN};User:nobody-else",
            }
            | config,
            log_level=log_level,
        )

    def client(self, user: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": SECRET if user == ADMIN else f"{user}-password",
            **more,
        }

    def wire(self, user: str) -> Wire:
        """A raw connection of a user."""
        wire = Wire("127.0.0.1", self.port)
        wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        token = f"\0{user}\0{SECRET if user == ADMIN else user + '-password'}".encode()
        assert wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)["error_code"] == 0
        return wire

    def admin(self) -> AdminClient:
        return AdminClient(self.client(ADMIN))

    def create(self, *topics: str) -> None:
        admin = self.admin()
        for done in admin.create_topics([NewTopic(topic, 1) for topic in topics]).values():
            done.result(10)

    def change(self, user: str, *rules: str, deny: bool = False, prefixed: bool = False) -> None:
        """Add rules as "WRITE TOPIC name"."""
        permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        bindings = []
        for rule in rules:
            operation, kind, name = rule.split()
            bindings.append(
                AclBinding(
                    ResourceType.BROKER if kind == "CLUSTER" else ResourceType[kind],
                    name,
                    pattern,
                    f"User:{user}",
                    "*",
                    AclOperation[operation],
                    permission,
                )
            )
        admin = self.admin()
        for done in admin.create_acls(bindings).values():
            done.result(10)

    def forget(self) -> None:
        """Remove all rules."""
        whatever: Any = None  # confluent-kafka's types leave out that a filter may have no name
        everything = AclBindingFilter(
            ResourceType.ANY,
            whatever,
            ResourcePatternType.ANY,
            whatever,
            whatever,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin = self.admin()
        for done in admin.delete_acls([everything]).values():
            done.result(10)

    def __enter__(self) -> Self:
        self.broker.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.broker.__exit__(*error)
