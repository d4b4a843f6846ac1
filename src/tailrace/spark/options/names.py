"""Every option by name. What is not listed here is an error, so that a misspelt option cannot be overlooked.

Names are compared without regard to case, as Spark does; they are listed as people write them. Settings of Kafka's own
clients begin with `kafka.`, and `options.kafka` judges them.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping

from tailrace.spark.options.errors import OptionError

CONNECTION = ("connectionCache.ttlMs", "connectionCache.capacity")
READ = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "minOffsetsPerTrigger",
    "maxOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    # Spark's connector names its consumer groups by it. We read without a group, so it changes nothing.
    "groupIdPrefix",
    # Ours, and not in Spark's connector:
    "columns",
    "groupId",
    "untilOffsets",
    "tier",
    "brokers",
    "targetRecordsPerTask",
    "topicIds",
    "pushFilters",
    "claimCheck",
    "claimCheck.url",
    *CONNECTION,
)
VALUES = (
    "value.format",
    "value.schema",
    "value.avro.prefix",
    "key.format",
    "key.schema",
    "key.avro.prefix",
    "value.schema.subject",
    "value.schema.version",
    "value.message",
    "key.schema.subject",
    "key.schema.version",
    "key.message",
    "schemaRegistryUrl",
    "schemaRegistryUserInfo",
    "schemaRegistryToken",
    "schemaRegistryCaFile",
    "schemaRegistryPatienceMs",
    "onDecodeError",
    "deadLetterTopic",
    "deadLetterRun",
)
WRITE = (
    "topic",
    "includeHeaders",
    "exactlyOnce",
    "exactlyOnceId",
    "exactlyOnceBatch",
    "decisionTopic",
    "transactionalIdPrefix",
    *CONNECTION,
)
# What of VALUES has a meaning for writing too.
WRITTEN_VALUES = (
    *(f"{column}.{name}" for column in ("key", "value") for name in ("format", "schema", "schema.subject")),
    *(f"{column}.{name}" for column in ("key", "value") for name in ("schema.version", "message")),
    "schemaRegistryUrl",
    "schemaRegistryUserInfo",
    "schemaRegistryToken",
    "schemaRegistryCaFile",
)
TABLE = ("table",)
# Spark hands these to every source and sink, whether they concern it or not.
SPARK = ("path", "checkpointLocation", "queryName", "outputMode", "mode")
_SPARK_PREFIXES = ("spark.", "__")
_KAFKA_PREFIX = "kafka."
_STORE_PREFIXES = ("rsm.config.", "claimcheck.config.")

_KNOWN = (*READ, *VALUES, *WRITE, *TABLE, *SPARK)
_LOWER = {name.lower(): name for name in _KNOWN}
# What people coming from elsewhere write, and what it is called here.
_SYNONYMS = {
    "bootstrap.servers": "kafka.bootstrap.servers",
    "bootstrapservers": "kafka.bootstrap.servers",
    "bootstrap": "kafka.bootstrap.servers",
    "topics": "subscribe",
    "group.id": "groupId",
    "isolation.level": "kafka.isolation.level",
}


def check_names(options: Mapping[str, str]) -> None:
    """Raises OptionError for a name that nobody knows."""
    for name in options:
        if name not in _LOWER and not name.startswith((_KAFKA_PREFIX, *_STORE_PREFIXES, *_SPARK_PREFIXES)):
            raise OptionError(_explain_unknown(name))


def warn_of_unused(options: Mapping[str, str], used: Iterable[str], *, purpose: str) -> None:
    """One that belongs to something else is no error, since jobs share their options between reading and writing."""
    meant = {name.lower() for name in (*used, *SPARK)}
    for name in options:
        if name in _LOWER and name not in meant:
            # Python shows the same text once a process.
            warnings.warn(f"option {_LOWER[name]} has no meaning for {purpose}, and is ignored", stacklevel=3)


def _explain_unknown(name: str) -> str:
    nearest = _SYNONYMS.get(name)
    if nearest is None:
        close = difflib.get_close_matches(name, [*_LOWER, "kafka.bootstrap.servers"], n=1, cutoff=0.5)
        nearest = _LOWER.get(close[0], close[0]) if close else None
    suggestion = f"did you mean {nearest}?" if nearest else f"the options are {', '.join(sorted(set(_KNOWN)))}."
    return f"there is no option {name}: {suggestion} (A setting of Kafka's own clients is given as kafka.NAME.)"
