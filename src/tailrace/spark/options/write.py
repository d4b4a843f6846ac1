"""What a query writes, and how. They cross to the executors by pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import KafkaSettings, parse_kafka_settings
from tailrace.spark.options.names import WRITE, WRITTEN_VALUES, check_names, warn_of_unused
from tailrace.spark.options.parsing import Options, parse_boolean, parse_integer

if TYPE_CHECKING:
    from tailrace.spark.values.registry.settings import Wanted
    from tailrace.spark.values.registry.writing import ColumnEncoder

_REGISTRY = "schemaregistryurl"
DECISION_TOPIC = "__tailrace_spark_decisions"
TRANSACTIONAL_ID_PREFIX = "tailrace-spark"


@dataclass(frozen=True)
class WriteOptions:
    kafka: KafkaSettings
    # Where all rows go; None: the column `topic` says it.
    topic: str | None
    exactly_once: bool
    # The name of a batch write: a second run with the same one completes the first, or finds it complete. Writes of one
    # name may follow each other, as those of foreachBatch do, and are then numbered.
    exactly_once_id: str | None = None
    exactly_once_batch: int = 0
    decision_topic: str = DECISION_TOPIC
    transactional_id_prefix: str = TRANSACTIONAL_ID_PREFIX
    # Columns that are written with a schema: as the options say, and how, once the columns are known.
    wanted: tuple[Wanted, ...] = ()
    encoders: tuple[ColumnEncoder, ...] = ()

    @classmethod
    def parse(cls, options: Options) -> WriteOptions:
        """Raises OptionError."""
        check_names(options)
        # Without a registry formats are for reading alone.
        values = WRITTEN_VALUES if _REGISTRY in options else ()
        warn_of_unused(options, (*WRITE, *values), purpose="writing")
        topic = options.get("topic")
        if topic is not None and not topic.strip():
            raise OptionError("option topic is empty: name a topic, or leave it out and give a column topic")
        exactly_once = parse_boolean(options, "exactlyOnce", default=False)
        if not exactly_once and "exactlyonceid" in options:
            raise OptionError(
                "option exactlyOnceId says nothing without exactlyOnce=true: set that too, or leave it out"
            )
        return cls(
            kafka=parse_kafka_settings(options),
            wanted=_parse_wanted(options, topic),
            topic=None if topic is None else topic.strip(),
            exactly_once=exactly_once,
            exactly_once_id=options.get("exactlyonceid") or None,
            exactly_once_batch=parse_integer(options, "exactlyOnceBatch") or 0,
            decision_topic=options.get("decisiontopic") or DECISION_TOPIC,
            transactional_id_prefix=options.get("transactionalidprefix") or TRANSACTIONAL_ID_PREFIX,
        )


def _parse_wanted(options: Options, topic: str | None) -> tuple[Wanted, ...]:
    """Raises OptionError."""
    if _REGISTRY not in options:
        return ()
    formats = [column for column in ("key", "value") if f"{column}.format" in options]
    from tailrace.spark.values.registry.settings import KINDS, parse_address, parse_wanted

    address = parse_address(options)
    assert address is not None
    topics = () if topic is None else (topic.strip(),)
    found = [parse_wanted(options, column, address, topics) for column in formats]
    if not found or None in found:
        raise OptionError(f"option schemaRegistryUrl needs value.format: one of {', '.join(KINDS)}")
    return tuple(each for each in found if each is not None)
