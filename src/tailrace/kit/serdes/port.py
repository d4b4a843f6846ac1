"""What a serde has to do, and how it fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol, runtime_checkable

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


@runtime_checkable
class AskingSerde(Protocol):
    """A serde that has to ask somebody now and then. The kit lets it do so before it calls `serialize` and
    `deserialize`, since those must not block."""

    async def prepare_write(self, topic: str, part: Part) -> None:
        """Raises SerializationError."""

    async def prepare_read(self, contents: Iterable[tuple[bytes | None, Headers]], part: Part) -> None:
        """Raises nothing: what is wrong with a value is told when it is opened."""


class Serde(Protocol):
    """None is a key that is missing, or the value of a tombstone, and stays None by all means."""

    def serialize(self, value: Any, topic: str, part: Part) -> bytes | None:
        """Raises SerializationError."""

    def deserialize(self, data: bytes | None, topic: str, part: Part, headers: Headers) -> Any:
        """Raises DeserializationError."""
