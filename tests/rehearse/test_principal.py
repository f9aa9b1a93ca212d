"""Whom a rehearsal's printed rights are for, by the client's settings alone."""

import pytest

from eoslog.client.wire.config import ClientConfig
from eoslog.client.wire.security_settings import KerberosSettings, SaslSettings, Security
from eoslog.rehearse.command import _principal


@pytest.mark.parametrize(("sasl", "user"), [
    (None, "User:ANONYMOUS"),
    (SaslSettings("PLAIN", "alice@example.org", "word"), "User:alice@example.org"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", "alice@REALM", "/k")), "User:alice"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", "spark/host@REALM", "/k")), "User:spark"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", "alice", "/k")), "User:alice"),
    (SaslSettings("GSSAPI", kerberos=KerberosSettings("kafka", ticket_cache="/none")), "User:ANONYMOUS"),
])  # fmt: skip
def test_whom_brokers_take_a_client_for(sasl: SaslSettings | None, user: str) -> None:
    assert _principal(ClientConfig((("b", 1),), security=Security(sasl=sasl))) == user
