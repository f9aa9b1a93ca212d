"""Options of Spark's connector and of Kafka's clients that change nothing here, each with its reason.

Three kinds: fixed ones (accepted with their value, refused with another), ones without effect (accepted), and
ones that would silently change the result (refused, with what to do instead). A name that is in no table is
refused if it begins with `kafka.`.
"""

FIXED: dict[str, tuple[str, ...]] = {
    "kafka.sasl.client.callback.handler.class": ("software.amazon.msk.auth.iam.IAMClientCallbackHandler",),
    "kafka.acks": ("all", "-1"),
    "kafka.enable.auto.commit": ("false",),
    "kafka.check.crcs": ("true",),
    "kafka.partitioner.ignore.keys": ("false",),
    "kafka.exclude.internal.topics": ("true",),
    "kafka.sasl.login.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    ),
    "kafka.sasl.oauthbearer.jwt.validator.class": (
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator",
    ),
}
"""Fixed client settings: accepted with these values, refused with any other. Case does not matter, nor what a
host puts before a class's name."""

_BY_ENDPOINT = (
    "give kafka.sasl.oauthbearer.token.endpoint.url, kafka.sasl.oauthbearer.client.credentials.client.id "
    "and kafka.sasl.oauthbearer.client.credentials.client.secret, and leave it out"
)
HANDLERS: dict[str, str] = {
    "IAMOAuthBearerLoginCallbackHandler": "Amazon MSK also takes kafka.sasl.mechanism=AWS_MSK_IAM at this "
    "port: give that, and leave it out, with kafka.sasl.jaas.config",
    "GcpLoginCallbackHandler": "give kafka.sasl.oauthbearer.token.callback, as logins.md has it for Google, "
    "and leave it out",
    "TokenUserLoginCallbackHandler": _BY_ENDPOINT,
    "JaasClientOauthLoginCallbackHandler": _BY_ENDPOINT,
}
"""Classes that hosts' pages tell people to type and that cannot run here: what does the same here."""

_JAVA_CLASS = "it names a Java class, which cannot run here; leave it out"
_LOGIN_CLASS = (
    "it names a Java class, which cannot run here; "
    "give kafka.sasl.oauthbearer.token.callback as module:function instead"
)

FORBIDDEN: dict[str, str] = {
    "kafka.auto.offset.reset": "the checkpoint says where to continue, and for the first start "
    "use the option startingOffsets instead",
    "kafka.key.deserializer": "keys are always binary; cast or decode them in the DataFrame",
    "kafka.value.deserializer": "values are always binary; cast or decode them in the DataFrame",
    "kafka.key.serializer": "keys are written as given; encode them in the DataFrame",
    "kafka.value.serializer": "values are written as given; encode them in the DataFrame",
    "kafka.interceptor.classes": "interceptors are Java classes and cannot run here; leave it out",
    "kafka.partitioner.class": "it names a Java class, which cannot run here; "
    "give a column named partition to choose partitions yourself",
    "kafka.transactional.id": "each task has its own id, made from that of the sink: "
    "use the option transactional.id instead",
    "kafka.transaction.two.phase.commit.enable": "the sink checks whether the brokers have it: "
    "use the option two.phase.commit instead",
    "databricks.serviceCredential": "the JVM of that Spark alone knows the credential: leave it out, and "
    "give kafka.security.protocol=SASL_SSL with kafka.sasl.mechanism=AWS_MSK_IAM, or with "
    "kafka.sasl.oauthbearer.token.callback as module:function",
    "kafka.topic": "it is not a setting of Kafka's clients: use the option topic instead",
    "kafka.metric.reporters": _JAVA_CLASS,
    "kafka.config.providers": "secrets cannot be looked up by Java classes; give them as options",
    "kafka.ssl.engine.factory.class": _JAVA_CLASS,
    "kafka.ssl.cipher.suites": "TLS is the Python interpreter's, and its suites have other names; "
    "limit them at the brokers, or give kafka.ssl.enabled.protocols",
    "kafka.sasl.login.class": _LOGIN_CLASS,
}
"""Settings that would change what is read or written, or whom the client trusts: refused, with what to do."""

_TIMES_BOUND_RETRIES = "time-outs bound retries: kafka.delivery.timeout.ms and kafka.default.api.timeout.ms"
_NO_MEMBER = "no consumer group is joined: Spark says which task reads what"
_ONE_PAUSE = "kafka.retry.backoff.ms and kafka.retry.backoff.max.ms set all pauses"
_ALL_AT_ONCE = "a batch is sent when it is full or the task's rows end: nothing waits for more rows"
_OWN_LOGIN = "tokens are renewed after most of their life"
_BROKERS_CHECK = "the brokers check tokens"
_OWN_TICKETS = "tickets of a keytab are replaced after half of their life; no kinit is started"
_LEVEL = "each compression has one level"
_JAVA_TLS = "TLS is the Python interpreter's"
_NO_JMX = "this client has no JMX metrics"
_FIRST_CONTACT = "addresses of first contact are tried again when no broker answers"

NO_EFFECT: dict[str, str] = {
    "groupIdPrefix": "no group is joined; kafka.group.id names the one to which offsets are committed",
    "useDeprecatedOffsetFetching": "offsets are always requested as Kafka's admin client does",
    "kafka.retries": _TIMES_BOUND_RETRIES,
    "kafka.linger.ms": _ALL_AT_ONCE,
    "kafka.buffer.memory": "a task holds only a few batches: kafka.max.in.flight.requests.per.connection",
    "kafka.partitioner.adaptive.partitioning.enable": "rows without key take partitions in turn",
    "kafka.partitioner.availability.timeout.ms": "rows without key take partitions in turn",
    "kafka.metadata.max.idle.ms": "topics are forgotten with the process",
    "kafka.compression.gzip.level": _LEVEL,
    "kafka.compression.lz4.level": _LEVEL,
    "kafka.compression.zstd.level": _LEVEL,
    "kafka.max.poll.records": "records are passed to Spark as they come; maxOffsetsPerTrigger and "
    "maxRecordsPerPartition bound a batch and its tasks",
    "kafka.max.poll.interval.ms": _NO_MEMBER,
    "kafka.session.timeout.ms": _NO_MEMBER,
    "kafka.heartbeat.interval.ms": _NO_MEMBER,
    "kafka.group.instance.id": _NO_MEMBER,
    "kafka.group.protocol": _NO_MEMBER,
    "kafka.group.remote.assignor": _NO_MEMBER,
    "kafka.partition.assignment.strategy": _NO_MEMBER,
    "kafka.share.acknowledgement.mode": _NO_MEMBER,
    "kafka.share.acquire.mode": _NO_MEMBER,
    "kafka.auto.commit.interval.ms": "offsets are committed with the rows of each micro-batch",
    "kafka.allow.auto.create.topics": "reading creates no topic; writing does if the brokers allow it",
    "kafka.reconnect.backoff.ms": _ONE_PAUSE,
    "kafka.reconnect.backoff.max.ms": _ONE_PAUSE,
    "kafka.socket.connection.setup.timeout.max.ms": "the time-out of a connection does not grow",
    "kafka.connections.max.idle.ms": "a connection that the broker closed is opened again when needed",
    "kafka.client.dns.lookup": "every address of a name is tried",
    "kafka.metadata.recovery.strategy": _FIRST_CONTACT,
    "kafka.metadata.recovery.rebootstrap.trigger.ms": _FIRST_CONTACT,
    "kafka.metrics.num.samples": _NO_JMX,
    "kafka.metrics.recording.level": _NO_JMX,
    "kafka.metrics.sample.window.ms": _NO_JMX,
    "kafka.auto.include.jmx.reporter": _NO_JMX,
    "kafka.enable.metrics.push": "no metrics are sent to the brokers (KIP-714)",
    "kafka.security.providers": _JAVA_TLS,
    "kafka.ssl.protocol": "kafka.ssl.enabled.protocols says which versions may be used",
    "kafka.ssl.provider": _JAVA_TLS,
    "kafka.ssl.keymanager.algorithm": _JAVA_TLS,
    "kafka.ssl.trustmanager.algorithm": _JAVA_TLS,
    "kafka.ssl.secure.random.implementation": _JAVA_TLS,
    "kafka.sasl.login.refresh.window.factor": _OWN_LOGIN,
    "kafka.sasl.login.refresh.window.jitter": _OWN_LOGIN,
    "kafka.sasl.login.refresh.min.period.seconds": _OWN_LOGIN,
    "kafka.sasl.login.refresh.buffer.seconds": _OWN_LOGIN,
    "kafka.sasl.oauthbearer.jwks.endpoint.url": _BROKERS_CHECK,
    "kafka.sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKERS_CHECK,
    "kafka.sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKERS_CHECK,
    "kafka.sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKERS_CHECK,
    "kafka.sasl.oauthbearer.clock.skew.seconds": _BROKERS_CHECK,
    "kafka.sasl.oauthbearer.expected.audience": _BROKERS_CHECK,
    "kafka.sasl.oauthbearer.expected.issuer": _BROKERS_CHECK,
    "kafka.sasl.oauthbearer.scope.claim.name": _BROKERS_CHECK,
    "kafka.sasl.kerberos.kinit.cmd": _OWN_TICKETS,
    "kafka.sasl.kerberos.ticket.renew.window.factor": _OWN_TICKETS,
    "kafka.sasl.kerberos.ticket.renew.jitter": _OWN_TICKETS,
    "kafka.sasl.kerberos.min.time.before.relogin": _OWN_TICKETS,
    "kafka.sasl.login.connect.timeout.ms": "kafka.request.timeout.ms bounds the login, too",
    "kafka.sasl.login.read.timeout.ms": "kafka.request.timeout.ms bounds the login, too",
    "kafka.sasl.login.retry.backoff.ms": _ONE_PAUSE,
    "kafka.sasl.login.retry.backoff.max.ms": _ONE_PAUSE,
}
"""Settings that are accepted and change nothing, with the reason."""
