"""Does every record of a batch name a schema that is registered under the right subject? Asked by a Produce, which
waits.
"""

from __future__ import annotations

from asyncio import sleep, timeout
from typing import TYPE_CHECKING

from tailrace.log.validation import MAX_ERRORS_SHOWN, MAX_RECORD_ERRORS, InvalidRecordsError
from tailrace.model.config import SUBJECT_NAME_STRATEGIES
from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tailrace.broker.schema_ids.reading import Named
    from tailrace.broker.schema_ids.registry import Registered, Registry
    from tailrace.model.config import BrokerConfig, TopicConfig
    from tailrace.model.ports import Ports

_TOPIC_NAME, _RECORD_NAME, _TOPIC_RECORD_NAME = SUBJECT_NAME_STRATEGIES


class SchemaIds:
    """One for a broker. Costs nothing before the first topic asks for it, not even an import."""

    def __init__(self, config: BrokerConfig, ports: Ports) -> None:
        self._config = config
        self._ports = ports
        self._registry: Registry | None = None

    async def check(self, topic: str, config: TopicConfig, records: memoryview, max_decompressed_bytes: int) -> None:
        """Raises InvalidRecordsError with the index of each record that is refused, or KafkaError."""
        registry = self._reached()
        named = await self._read(records, config, max_decompressed_bytes)
        errors = named.bad + await self._look_up(registry, topic, config, named)
        if errors:
            errors.sort()
            shown = "; ".join(f"record {index}: {why}" for index, why in errors[:MAX_ERRORS_SHOWN])
            more = f"; and {len(errors) - MAX_ERRORS_SHOWN} more" if len(errors) > MAX_ERRORS_SHOWN else ""
            raise InvalidRecordsError(ErrorCode.INVALID_RECORD, shown + more, errors[:MAX_RECORD_ERRORS])

    def _reached(self) -> Registry:
        if self._registry is None:
            url = (self._config.confluent_schema_registry_url or "").strip(" ,")
            if not url:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    "The topic checks schema ids, and this broker has no confluent.schema.registry.url: set it, or "
                    "turn confluent.value.schema.validation and confluent.key.schema.validation of the topic off.",
                )
            from tailrace.broker.schema_ids.registry import Registry

            self._registry = Registry(url, self._config, self._ports)
        return self._registry

    async def _read(self, records: memoryview, config: TopicConfig, max_decompressed_bytes: int) -> Named:
        from tailrace.broker.schema_ids.reading import read_named

        steps = read_named(records, config, max_decompressed_bytes)
        try:
            work = next(steps)
            while True:
                if work is not None:
                    work = steps.send(await self._ports.background.run(work))
                else:
                    await sleep(0)
                    work = steps.send(b"")
        except StopIteration as done:
            named: Named = done.value
            return named

    async def _look_up(
        self, registry: Registry, topic: str, config: TopicConfig, named: Named
    ) -> list[tuple[int, str]]:
        """The records that are refused. What is learned before the time is over stays known: whoever sends the batch
        again gets further."""
        from tailrace.broker.schema_ids.registry import RegistryAwayError

        errors: list[tuple[int, str]] = []
        timeout_ms = self._config.schema_validation_timeout_ms
        try:
            async with timeout(timeout_ms / 1000):
                for (part, schema), indexes in named.records.items():
                    try:
                        reason = await self._why_not(registry, topic, config, part, schema)
                    except RegistryAwayError as error:
                        self._go_without(f"about schema {schema}: {error}")
                    else:
                        if reason is not None:
                            errors += [(index, reason) for index in indexes[:MAX_RECORD_ERRORS]]
        except TimeoutError:
            self._go_without(f"about {len(named.records)} schemas within {timeout_ms} ms")
        return errors

    def _go_without(self, why: str) -> None:
        if self._config.schema_validation_without_registry == "accept":
            return
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The schema registry cannot be asked {why}. Nothing was stored; try again. "
            "(schema.validation.without.registry=accept would take such records unchecked.)",
        )

    async def _why_not(
        self, registry: Registry, topic: str, config: TopicConfig, part: str, schema: int | str
    ) -> str | None:
        """Raises RegistryAwayError."""
        strategy = config.confluent_key_subject_name_strategy
        if part == "value":
            strategy = config.confluent_value_subject_name_strategy
        subject = f"{topic}-{part}"
        found = await registry.find(schema, fits=frozenset({subject}) if strategy == _TOPIC_NAME else None)
        if not found.subjects:
            return f"The {part} names schema {schema}, which the schema registry does not know"
        wanted = _subjects(strategy, topic, part, found)
        if found.subjects & wanted:
            return None
        return (
            f"The {part} names schema {schema}, which is registered under {_listed(found.subjects)}, and not under "
            f"{_listed(wanted)}"
        )


def _subjects(strategy: str, topic: str, part: str, found: Registered) -> frozenset[str]:
    if strategy == _TOPIC_NAME:
        return frozenset({f"{topic}-{part}"})
    prefix = f"{topic}-" if strategy == _TOPIC_RECORD_NAME else ""
    return frozenset(prefix + name for name in found.names)


def _listed(subjects: frozenset[str]) -> str:
    shown = sorted(subjects)[:3]
    return ", ".join(shown) + (f" and {len(subjects) - 3} more" if len(subjects) > 3 else "") if shown else "any"
