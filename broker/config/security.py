"""Options of authentication and authorization."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.config.config_def import option

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True)
class SecurityOptions:
    """Who may connect, and who may do what."""

    ssl_keystore_type: str = option(
        "JKS", "ssl.keystore.type", "JKS, PKCS12 (each means both) or PEM; by default what the file is"
    )
    ssl_keystore_location: str = option(
        "", "ssl.keystore.location", "file with the broker's private key and its certificate chain"
    )
    ssl_keystore_password: str = option(
        "", "ssl.keystore.password", "password of a key store that is JKS or PKCS12", secret=True
    )
    ssl_keystore_certificate_chain: str = option(
        "", "ssl.keystore.certificate.chain", "the certificate chain itself, in place of a file", secret=True
    )
    ssl_keystore_key: str = option("", "ssl.keystore.key", "the private key itself, PKCS #8", secret=True)
    ssl_key_password: str = option(
        "", "ssl.key.password", "password of an encrypted key; in JKS that of the store if empty", secret=True
    )
    ssl_truststore_type: str = option(
        "JKS", "ssl.truststore.type", "JKS, PKCS12 (each means both) or PEM; by default what the file is"
    )
    ssl_truststore_location: str = option(
        "", "ssl.truststore.location", "file with the certificates that sign clients' certificates"
    )
    ssl_truststore_password: str = option(
        "", "ssl.truststore.password", "password of a trust store that is JKS or PKCS12", secret=True
    )
    ssl_truststore_certificates: str = option(
        "", "ssl.truststore.certificates", "those certificates themselves, in place of a file", secret=True
    )
    ssl_client_auth: str = option(
        "none",
        "ssl.client.auth",
        "whether clients are asked for a certificate",
        choices=("none", "requested", "required"),
    )
    ssl_enabled_protocols: str = option(
        "TLSv1.2,TLSv1.3", "ssl.enabled.protocols", "TLS versions to accept, among TLSv1.2 and TLSv1.3"
    )
    ssl_principal_mapping_rules: str = option(
        "DEFAULT",
        "ssl.principal.mapping.rules",
        "how a certificate's distinguished name becomes a user: RULE:pattern/replacement/[LU],...,DEFAULT",
    )
    sasl_enabled_mechanisms: str = option(
        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.enabled.mechanisms",
        "SASL mechanisms to offer, among PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER and GSSAPI",
    )
    sasl_users_file: str = option(
        "", "sasl.users.file", "file of NAME=PASSWORD lines, for PLAIN and SCRAM on every listener"
    )
    sasl_kerberos_service_name: str = option(
        "",
        "sasl.kerberos.service.name",
        "the first part of the broker's Kerberos principal; empty: as in the JAAS text of GSSAPI",
    )
    sasl_kerberos_rules: str = option(
        "DEFAULT",
        "sasl.kerberos.principal.to.local.rules",
        "how a Kerberos principal becomes a user: Kafka's RULE:... and DEFAULT, with commas between",
    )
    sasl_max_receive_size: int = option(
        524_288, "sasl.server.max.receive.size", "largest request before a client has authenticated", low=1
    )
    connections_max_reauth_ms: int = option(
        0, "connections.max.reauth.ms", "how long a SASL session lasts until it must be renewed; 0: for ever"
    )
    failed_authentication_delay_ms: int = option(
        100,
        "connection.failed.authentication.delay.ms",
        "how long the answer to a failed authentication is delayed",
        high=60_000,
    )
    oauth_jwks_url: str = option(
        "", "sasl.oauthbearer.jwks.endpoint.url", "http(s): or file: URL of the keys that sign tokens (JWKS)"
    )
    oauth_jwks_refresh_ms: int = option(
        3_600_000, "sasl.oauthbearer.jwks.endpoint.refresh.ms", "how often the keys are read again", low=1
    )
    oauth_issuer: str = option("", "sasl.oauthbearer.expected.issuer", "the required issuer of a token (iss)")
    oauth_audience: str = option(
        "", "sasl.oauthbearer.expected.audience", "the accepted audiences of a token (aud), by commas"
    )
    oauth_clock_skew_s: int = option(
        30, "sasl.oauthbearer.clock.skew.seconds", "allowed difference between the clocks", high=86_400
    )
    oauth_subject_claim: str = option(
        "sub", "sasl.oauthbearer.sub.claim.name", "the claim that names the user"
    )
    oauth_scope_claim: str = option(
        "scope", "sasl.oauthbearer.scope.claim.name", "the claim that names the scopes"
    )
    authorizer: str = option(
        "",
        "authorizer.class.name",
        "the authorizer; empty: everybody may do everything",
        choices=("", AUTHORIZER),
    )
    super_users: str = option("", "super.users", "users who may do everything, as User:NAME;User:NAME")
    allow_without_acl: bool = option(
        False, "allow.everyone.if.no.acl.found", "whether resources without any ACL are open to everybody"
    )
