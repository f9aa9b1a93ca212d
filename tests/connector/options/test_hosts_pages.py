"""What the pages of large hosts tell people to type for Spark's Kafka connector: taken as it stands,
or refused with what to type instead, which is taken.

The hosts' pages, as read in November 2026: Databricks ("Authentication" of its Kafka connector, on Azure, AWS
and Google Cloud), Azure Event Hubs, Amazon MSK (and the README of aws-msk-iam-auth), Google Cloud Managed
Service for Apache Kafka, Confluent Cloud. Hosted Sparks keep Kafka's classes under names of their own.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eoslog.client.wire.security_settings import Flow, SaslSettings, Security
from eoslog.connector.options.ignored_and_refused import HANDLERS
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.errors import OptionError
from eoslog.protocol import jaas

KAFKA = "org.apache.kafka.common.security"
SHADED = f"kafkashaded.{KAFKA}"
OAUTH = "oauthbearer.OAuthBearerLoginModule"
FETCHER = "oauthbearer.secured.OAuthBearerLoginCallbackHandler"
MSK = "software.amazon.msk.auth.iam"
SECRET = "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey=a+b/c="
SASL_SSL = {"kafka.security.protocol": "SASL_SSL"}
EVENT_HUBS = {"kafka.bootstrap.servers": "ns.servicebus.windows.net:9093", **SASL_SSL}
MSK_BROKERS = "b-1.c.kafka.eu-west-1.amazonaws.com:9098,b-2.c.kafka.eu-west-1.amazonaws.com:9098"
TOKEN_URL = "https://login.microsoft.com/tenant/oauth2/v2.0/token"


def by_password(package: str, **more: str) -> dict[str, str]:
    login = f'{package}.plain.PlainLoginModule required username="$ConnectionString" password="{SECRET}";'
    return {**EVENT_HUBS, "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": login, **more}


def by_entra(package: str, end: str = ' ssl.protocol="SSL";') -> dict[str, str]:
    who = 'clientId="id" clientSecret="s" scope="https://ns.servicebus.windows.net/.default"'
    return {
        **EVENT_HUBS,
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f"{package}.{OAUTH} required {who}{end}",
        "kafka.sasl.oauthbearer.token.endpoint.url": TOKEN_URL,
        "kafka.sasl.login.callback.handler.class": f"{package}.{FETCHER}",
    }


def by_iam(package: str, login: str = "") -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": MSK_BROKERS,
        **SASL_SSL,
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": f"{package}.IAMLoginModule required{login};",
        "kafka.sasl.client.callback.handler.class": f"{package}.IAMClientCallbackHandler",
    }


TAKEN: dict[str, dict[str, str]] = {
    "Azure Event Hubs, connection string": by_password(KAFKA, **{"kafka.session.timeout.ms": "30000"}),
    "Databricks, Event Hubs, connection string": by_password(
        SHADED,
        **{"kafka.request.timeout.ms": "60000", "kafka.ssl.endpoint.identification.algorithm": "https"},
    ),
    "Azure Event Hubs, Entra ID": by_entra(KAFKA, ";"),
    "Databricks, Event Hubs, Entra ID": by_entra(SHADED),
    "Amazon MSK, IAM": by_iam(MSK),
    "Amazon MSK, IAM, role": by_iam(
        MSK, ' awsRoleArn="arn:aws:iam::123456789012:role/r" awsStsRegion="eu-west-1"'
    ),
    "Databricks, Amazon MSK, IAM": by_iam(f"shadedmskiam.{MSK}"),
    "Databricks, Amazon MSK, IAM, role": by_iam(
        f"shadedmskiam.{MSK}", ' awsRoleArn="arn:aws:iam::123456789012:role/r"'
    ),
    "Amazon MSK, SCRAM": {
        "kafka.bootstrap.servers": MSK_BROKERS.replace("9098", "9096"),
        **SASL_SSL,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{KAFKA}.scram.ScramLoginModule required username="u" password="p";',
    },
    "Databricks, Amazon MSK, SCRAM": {
        "kafka.bootstrap.servers": MSK_BROKERS.replace("9098", "9096"),
        **SASL_SSL,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f"{SHADED}.scram.ScramLoginModule required username='u' password='p';",
    },
    "Amazon MSK, TLS": {
        "kafka.bootstrap.servers": MSK_BROKERS.replace("9098", "9094"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/tmp/kafka.client.truststore.jks",
    },
    "Confluent Cloud, API key": {
        "kafka.bootstrap.servers": "SASL_SSL://pkc-1.eu-west-1.aws.confluent.cloud:9092",
        **SASL_SSL,
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{KAFKA}.plain.PlainLoginModule   required username="k" password="s";',
        "kafka.client.dns.lookup": "use_all_dns_ips",
        "kafka.session.timeout.ms": "45000",
        "kafka.acks": "all",
    },
    "Databricks, Confluent Cloud, API key": {
        "kafka.bootstrap.servers": "pkc-1.eu-west-1.aws.confluent.cloud:9092",
        **SASL_SSL,
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f"{SHADED}.plain.PlainLoginModule required username='k' password='s';",
        "kafka.ssl.endpoint.identification.algorithm": "https",
    },
}
"""The page's name in logins.md: the options that it tells to type."""

GOOGLE = {
    "kafka.bootstrap.servers": "bootstrap.c.europe-west1.managedkafka.p.cloud.goog:9092",
    **SASL_SSL,
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.jaas.config": f"{KAFKA}.{OAUTH} required;",
    "kafka.sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
}
MSK_BY_TOKEN = {
    **by_iam(MSK),
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.jaas.config": f'{KAFKA}.{OAUTH} required awsStsRegion="eu-west-1";',
    "kafka.sasl.login.callback.handler.class": f"{MSK}.IAMOAuthBearerLoginCallbackHandler",
    "kafka.sasl.client.callback.handler.class": f"{MSK}.IAMOAuthBearerLoginCallbackHandler",
}
CONFLUENT_TOKENS = "io.confluent.kafka.clients.plugins.auth.token"
CONFLUENT = {
    **by_entra(KAFKA, " extension_logicalCluster='lkc-1' extension_identityPoolId='pool-1';"),
    "kafka.sasl.login.callback.handler.class": f"{CONFLUENT_TOKENS}.TokenUserLoginCallbackHandler",
}
STRIMZI_OAUTH = "io.strimzi.kafka.oauth.client"
STRIMZI = {
    **SASL_SSL,
    "kafka.bootstrap.servers": "b:9093",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.jaas.config": f"{SHADED}.{OAUTH} required oauth.client.id='id' oauth.client.secret='s' "
    "oauth.token.endpoint.uri='https://idp/token';",
    "kafka.sasl.login.callback.handler.class": f"{STRIMZI_OAUTH}.JaasClientOauthLoginCallbackHandler",
}
CREDENTIAL = {"kafka.bootstrap.servers": MSK_BROKERS, "databricks.serviceCredential": "mine"}
TOKEN_HERE = {"kafka.sasl.oauthbearer.token.callback": "tokens:token"}
IAM_HERE = {"kafka.sasl.mechanism": "AWS_MSK_IAM", **SASL_SSL}

INSTEAD: dict[str, tuple[dict[str, str], dict[str, str | None]]] = {
    "Google Cloud Managed Service for Apache Kafka": (
        GOOGLE,
        {**TOKEN_HERE, "kafka.sasl.login.callback.handler.class": None},
    ),
    "Amazon MSK, IAM by OAUTHBEARER": (
        MSK_BY_TOKEN,
        {**IAM_HERE, **{name: None for name in MSK_BY_TOKEN if "class" in name or "jaas" in name}},
    ),
    "Confluent Cloud, OAuth": (CONFLUENT, {"kafka.sasl.login.callback.handler.class": None}),
    "Strimzi, OAuth": (
        STRIMZI,
        {
            "kafka.sasl.login.callback.handler.class": None,
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            "kafka.sasl.oauthbearer.client.credentials.client.id": "id",
            "kafka.sasl.oauthbearer.client.credentials.client.secret": "s",
        },
    ),
    "Databricks, service credential": (CREDENTIAL, {**IAM_HERE, "databricks.serviceCredential": None}),
}
"""The page's name in logins.md: what it tells to type, and what the refusal changes (None: left out)."""


def security(options: dict[str, str]) -> Security:
    """That of a query which reads, and which is that of one which writes."""
    read = source_options({"subscribe": "t", **options}, stream=True).client
    assert read == sink_options({"topic": "t", **options}, stream=True).client
    return read.security


@pytest.mark.parametrize("page", TAKEN)
def test_what_a_page_says_is_taken_as_it_stands(page: str) -> None:
    given = TAKEN[page]
    found = security(given)
    assert found.tls is not None
    if "kafka.sasl.mechanism" in given:
        assert found.sasl is not None and found.sasl.mechanism == given["kafka.sasl.mechanism"]
        assert_login(given, found.sasl)


def assert_login(given: dict[str, str], sasl: SaslSettings) -> None:
    login = jaas.parse(given["kafka.sasl.jaas.config"]).options
    assert (sasl.user, sasl.password) == (login.get("username", ""), login.get("password", ""))
    if sasl.tokens is not None:
        assert sasl.tokens.flow is Flow.CLIENT_CREDENTIALS and sasl.tokens.url == TOKEN_URL
        assert (sasl.tokens.client_id, sasl.tokens.client_secret) == ("id", "s")
        assert sasl.tokens.scope == "https://ns.servicebus.windows.net/.default"
    if sasl.aws is not None:
        assert sasl.aws.role_arn == login.get("awsRoleArn")


@pytest.mark.parametrize("page", INSTEAD)
def test_what_is_refused_says_what_to_type_and_that_is_taken(page: str) -> None:
    given, changed = INSTEAD[page]
    with pytest.raises(OptionError) as raised:
        security(given)
    said = str(raised.value)
    for name, value in changed.items():
        assert name in said or value is None or name == "kafka.security.protocol", (name, said)
    assert re.search(r"\bleave (it|them|both) out\b", said), said
    after = {name: value for name, value in {**given, **changed}.items() if value is not None}
    assert security(after).sasl is not None


@pytest.mark.parametrize("before", ["kafkashaded.", "shadedmskiam.", "org.apache.flink.kafka.shaded."])
def test_a_class_is_taken_under_the_names_that_hosts_give_it_wherever_one_may_stand(before: str) -> None:
    entra = by_entra(before + KAFKA)
    entra["kafka.sasl.oauthbearer.jwt.retriever.class"] = (
        f"{before}{KAFKA}.oauthbearer.ClientCredentialsJwtRetriever"
    )
    entra["kafka.sasl.oauthbearer.jwt.validator.class"] = f"{before}{KAFKA}.oauthbearer.DefaultJwtValidator"
    assert security(entra) == security(by_entra(KAFKA))
    assert security(by_iam(before + MSK)) == security(by_iam(MSK))
    for wrong in (f"{before}com.example.Handler", f"com.example.{KAFKA}x.{FETCHER}", f"x{KAFKA}.{FETCHER}"):
        with pytest.raises(OptionError, match=r"login\.callback\.handler\.class cannot be"):
            security({**entra, "kafka.sasl.login.callback.handler.class": wrong})


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.keystore.password", "ssl.cipher.suites"])
def test_what_a_login_says_of_trust_is_not_passed_over(name: str) -> None:
    with pytest.raises(OptionError, match=rf"jaas\.config: {re.escape(name)} .*token endpoint"):
        security(by_entra(SHADED, f' ssl.protocol="SSL" {name}="x";'))


def test_every_handler_that_is_known_and_refused_is_of_a_page_here() -> None:
    classes = " ".join(
        value for given, _ in INSTEAD.values() for name, value in given.items() if "class" in name
    )
    assert all(handler in classes for handler in HANDLERS)


def test_the_docs_name_these_pages() -> None:
    text = Path("docs/logins.md").read_text()
    table = text.split("## What hosts' pages tell you to type")[1].split("\n## ")[0]
    cells = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    told = {name: answer for names, answer in cells for name in names.removeprefix("| ").split("; ")}
    assert sorted(told) == sorted([*TAKEN, *INSTEAD])
    assert all(told[name].startswith("accepted, not tested there") for name in TAKEN)
    assert all(told[name].startswith("refused: ") for name in INSTEAD)
