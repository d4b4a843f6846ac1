"""What a serde has to do, and how it fails."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.payload import Headers

Part = Literal["key", "value"]


class SerializationError(KafkaError):
    """A key or value cannot be written: nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class DeserializationError(KafkaError):
    """A key or value that was read is not what was expected."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class Serde(Protocol):
    """None is a key that is missing, or the value of a tombstone, and stays None by all means."""

    def serialize(self, value: Any, topic: str, part: Part) -> bytes | None:
        """Raises SerializationError."""

    def deserialize(self, data: bytes | None, topic: str, part: Part, headers: Headers) -> Any:
        """Raises DeserializationError."""
