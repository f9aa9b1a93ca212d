"""From Kerberos principals to users: Kafka's rules, case by case."""

import pytest

from eoslog.broker.config import ConfigError
from eoslog.broker.security.gssapi import local_name, parse_rules

REALM = "A.ORG"


@pytest.mark.parametrize(("rules", "principal", "user"), [
    ("DEFAULT", "alice@A.ORG", "alice"),
    ("DEFAULT", "kafka/host.a.org@A.ORG", "kafka"),
    ("DEFAULT", "alice@B.ORG", None),
    ("DEFAULT", "alice", None),
    ("DEFAULT", "a/b/c@A.ORG", None),
    ("RULE:[1:$1@$0](.*@B.ORG)s/@.*//,DEFAULT", "alice@B.ORG", "alice"),
    ("RULE:[1:$1@$0](.*@B.ORG)s/@.*//,DEFAULT", "alice@A.ORG", "alice"),
    ("RULE:[1:$1@$0](.*@B.ORG)s/@.*//,DEFAULT", "alice@C.ORG", None),
    ("RULE:[2:$1_$2]", "kafka/h1@C.ORG", "kafka_h1"),
    ("RULE:[2:$1_$2]", "kafka@C.ORG", None),
    ("RULE:[1:$1]s/a/x/", "banana@A.ORG", "bxnana"),
    ("RULE:[1:$1]s/a/x/g", "banana@A.ORG", "bxnxnx"),
    ("RULE:[1:$1]s/(b)(a)/$2$1/", "banana@A.ORG", "abnana"),
    ("RULE:[1:$1]/L", "ALICE@A.ORG", "alice"),
    ("RULE:[1:$1]/U", "alice@A.ORG", "ALICE"),
    ("RULE:[1:$1@$0]", "alice@A.ORG", None),
    ("", "alice@A.ORG", None),
    ("RULE:[1:$1](),DEFAULT", "alice@A.ORG", "alice"),
    ("RULE:[1:$1]s//x/", "alice@A.ORG", "xalice"),
])  # fmt: skip
def test_a_principal_s_user(rules: str, principal: str, user: str | None) -> None:
    assert local_name(principal, rules, REALM) == user


@pytest.mark.parametrize(
    "rules", ["default", "RULE:[1:$2]", "RULE:1:$1", "RULE:[1:$1](()", "RULE:[1:$1]s/(//"]
)
def test_rules_that_are_none(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        parse_rules(rules)
