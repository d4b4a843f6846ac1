"""What producers and consumers hand over and give back: records, and word of what became of them.

Timestamps are milliseconds since 1970. A key or value is bytes on the wire; a `serdes.Serde` makes it something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from tailrace.client.groups.offsets import Committed as OffsetAndMetadata
from tailrace.client.lanes import Delivered
from tailrace.model import ids
from tailrace.model.errors import KafkaError
from tailrace.wire.records import Record

if TYPE_CHECKING:
    from tailrace.kit.serdes import Serde

__all__ = [
    "Delivered",
    "DeliveryReport",
    "Headers",
    "Message",
    "OffsetAndMetadata",
    "Outgoing",
    "Place",
    "Source",
    "TopicPartition",
    "WireHeaders",
    "headers_of",
    "message_type",
]

WireHeaders = tuple[tuple[str, bytes | None], ...]
# Of a mapping by partition: those of the kit, or the client's own, of which they are.
Place = TypeVar("Place", bound=ids.TopicPartition)
# As they are given: pairs, of which a name may come twice, or a mapping.
Headers = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]


class TopicPartition(ids.TopicPartition):
    """One partition of one topic, by name."""

    __slots__ = ()

    def __new__(cls, topic: str, partition: int) -> TopicPartition:
        return tuple.__new__(cls, (topic, partition))

    @classmethod
    def of(cls, partition: ids.TopicPartition) -> TopicPartition:
        return tuple.__new__(cls, partition)


class Outgoing(NamedTuple):
    """A record for `send_many`, where a value alone does not say enough."""

    value: Any
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class DeliveryReport(NamedTuple):
    """What became of a record: where it went, or why it did not. With an `UnknownOutcomeError` it may be there all the
    same; any other error says that it is not."""

    topic: str
    key: bytes | None
    value: bytes | None
    delivered: Delivered | None
    error: KafkaError | None


class Source(NamedTuple):
    """Where a message came from, and how it is opened."""

    topic: str
    partition: int
    keys: Serde
    values: Serde


class Message(Record):
    """A record as a consumer reads it. `key` and `value` are opened when they are asked for, each time, and raise
    DeserializationError; `raw_key` and `raw_value` never fail.

    The messages of a partition have a type of their own that knows where they came from: decoding makes them at once,
    and they are no larger than records.
    """

    __slots__ = ()
    source: ClassVar[Source]

    def __new__(  # noqa: PLR0917 - the fields of a tuple
        cls,
        offset: int,
        timestamp: int,
        raw_key: bytes | None,
        raw_value: bytes | None,
        headers: WireHeaders,
        source: Source,
    ) -> Message:
        return tuple.__new__(message_type(source), (offset, timestamp, raw_key, raw_value, headers))

    @property
    def raw_key(self) -> bytes | None:
        return self[2]

    @property
    def raw_value(self) -> bytes | None:
        return self[3]

    @property
    def topic(self) -> str:
        return self.source.topic

    @property
    def partition(self) -> int:
        return self.source.partition

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.source.topic, self.source.partition)

    @property
    def key(self) -> Any:
        return self.source.keys.deserialize(self[2], self.source.topic, "key", self.headers)

    @property
    def value(self) -> Any:
        return self.source.values.deserialize(self[3], self.source.topic, "value", self.headers)

    def as_from(self, topic: str, partition: int, offset: int, timestamp: int) -> Message:
        """The same, as if it had been read there: a record that was moved is handled as what it was at first."""
        there = message_type(self.source._replace(topic=topic, partition=partition))
        return tuple.__new__(there, (offset, timestamp, *self[2:]))

    def _replace(self, **changes: Any) -> Message:
        """By the names of `Message(...)`."""
        offset, timestamp, raw_key, raw_value, headers = self
        fields = {"offset": offset, "timestamp": timestamp, "raw_key": raw_key, "raw_value": raw_value}
        return Message(**{**fields, "headers": headers, "source": self.source, **changes})

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.source, tuple(self))

    def header(self, name: str) -> bytes | None:
        """The last one of that name, or None."""
        return next((content for each, content in reversed(self.headers) if each == name), None)


@lru_cache(1024)
def message_type(source: Source) -> type[Message]:
    return type("Message", (Message,), {"__slots__": (), "source": source})


def _rebuilt(source: Source, fields: tuple[Any, ...]) -> Message:
    return tuple.__new__(message_type(source), fields)


def headers_of(headers: Headers) -> WireHeaders:
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, content.encode() if isinstance(content, str) else content) for name, content in pairs)
