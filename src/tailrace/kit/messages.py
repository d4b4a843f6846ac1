"""What producers and consumers hand over and give back: records, and word of what became of them.

Timestamps are milliseconds since 1970. A key or value is bytes on the wire; a `serdes.Serde` makes it something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.client.groups.offsets import Committed as OffsetAndMetadata
from tailrace.client.lanes import Delivered
from tailrace.model import ids
from tailrace.model.errors import KafkaError

if TYPE_CHECKING:
    from tailrace.kit.serdes import Serde

__all__ = [
    "Delivered",
    "DeliveryReport",
    "Headers",
    "Message",
    "OffsetAndMetadata",
    "Outgoing",
    "Source",
    "TopicPartition",
    "WireHeaders",
    "headers_of",
]

WireHeaders = tuple[tuple[str, bytes | None], ...]
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


class _Fields(NamedTuple):
    offset: int
    timestamp: int
    raw_key: bytes | None
    raw_value: bytes | None
    headers: WireHeaders
    source: Source


class Message(_Fields):
    """A record as a consumer reads it. `key` and `value` are opened when they are asked for, each time, and raise
    DeserializationError; `raw_key` and `raw_value` never fail."""

    __slots__ = ()

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
        return self.source.keys.deserialize(self.raw_key, self.source.topic, "key", self.headers)

    @property
    def value(self) -> Any:
        return self.source.values.deserialize(self.raw_value, self.source.topic, "value", self.headers)

    def header(self, name: str) -> bytes | None:
        """The last one of that name, or None."""
        return next((content for each, content in reversed(self.headers) if each == name), None)


def headers_of(headers: Headers) -> WireHeaders:
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, content.encode() if isinstance(content, str) else content) for name, content in pairs)
