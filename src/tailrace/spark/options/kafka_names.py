"""The settings of Kafka's clients (4.3, and some of librdkafka) that are refused here, or ignored with a warning."""

from __future__ import annotations

from collections.abc import Mapping

# As in Spark's connector, and what would turn its sink into something else.
REFUSED: Mapping[str, str] = {
    "auto.offset.reset": "where to start is the query's own business: use startingOffsets",
    "key.deserializer": "keys come as bytes: cast them, or use key.format",
    "value.deserializer": "values come as bytes: cast them, or use value.format",
    "key.serializer": "keys are strings or bytes: cast them before",
    "value.serializer": "values are strings or bytes: cast them before",
    "enable.auto.commit": "the query keeps its offsets in its checkpoint: groupId commits them to a group as well",
    "interceptor.classes": "it would change what is read or written, and no Java class can run here",
    "transactional.id": "the sink makes such ids itself, one for each task: use exactlyOnce",
}

_NO_GROUP = "readers are members of no group; use groupId to commit offsets to one"
_NO_JAVA = "no Java class can run here"
_NO_METRICS = "this client has no metrics of its own; Spark reports its rates"
_NO_KERBEROS = "Kerberos (GSSAPI) is not supported"
_BY_THE_KERNEL = "the kernel chooses the size of its buffers"
_ON_DEMAND = "metadata is asked for when it is needed, and again when a broker says that it is old"
_RETRIES = "retry.backoff.ms, default.api.timeout.ms and delivery.timeout.ms decide when and how long to try again"
_BY_TASK = "a connection lives as long as its task"
_OPENSSL = "TLS is OpenSSL's here, not Java's"
_TOKENS = "a token comes from an endpoint by the client's id and secret, and is new before it ends"
_PARTITIONER = "keys go to the partitions of Kafka's own default partitioner"

_BY_REASON: Mapping[str, tuple[str, ...]] = {
    _NO_GROUP: (
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "max.poll.interval.ms",
        "auto.commit.interval.ms",
        "partition.assignment.strategy",
        "exclude.internal.topics",
        "share.acknowledgement.mode",
        "share.acquire.mode",
        "internal.throw.on.fetch.stable.offset.unsupported",
    ),
    _NO_JAVA: (
        "config.providers",
        "partitioner.class",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "security.providers",
        "ssl.engine.factory.class",
    ),
    _NO_METRICS: (
        "enable.metrics.push",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
    ),
    _NO_KERBEROS: (
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    ),
    _BY_THE_KERNEL: ("receive.buffer.bytes", "send.buffer.bytes"),
    _ON_DEMAND: (
        "client.dns.lookup",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
    ),
    _RETRIES: (
        "max.block.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retries",
        "socket.connection.setup.timeout.max.ms",
    ),
    _BY_TASK: ("connections.max.idle.ms",),
    _OPENSSL: (
        "ssl.cipher.suites",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ),
    _TOKENS: (
        "sasl.login.connect.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    ),
    _PARTITIONER: (
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
    ),
    "topics are created by the broker, if it is set up so, when they are written to": ("allow.auto.create.topics",),
    "checksums are always checked": ("check.crcs",),
    "partitions are read from their leaders": ("client.rack",),
    "rows go to Spark in batches of their own size": ("max.poll.records",),
    "up to five batches of a partition are under way, as many as brokers keep in order": (
        "max.in.flight.requests.per.connection",
    ),
    "the sink decides that itself": ("transaction.two.phase.commit.enable",),
}
# name -> why nothing comes of it
IGNORED: Mapping[str, str] = {name: reason for reason, names in _BY_REASON.items() for name in names}
