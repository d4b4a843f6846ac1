"""Serdes that need no schema: bytes, text, JSON, and what is chosen by the type of a value.

JSON writes dataclasses and pydantic models as objects, and reads into them if it is told their class.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from tailrace.kit.serdes.port import DeserializationError, Part, SerializationError
from tailrace.wire.payload import Headers


class Bytes:
    def serialize(self, value: Any, topic: str, part: Part) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise _misfit(value, topic, part, "it takes bytes alone: give it another serde, such as Text() or Json()")

    def deserialize(self, data: bytes | None, topic: str, part: Part, headers: Headers) -> Any:  # noqa: ARG002 - as all serdes
        return data


class Text:
    """UTF-8."""

    def serialize(self, value: Any, topic: str, part: Part) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise _misfit(value, topic, part, "it takes str alone")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise _misfit(value, topic, part, f"its text is no UTF-8: {error}") from None

    def deserialize(self, data: bytes | None, topic: str, part: Part, headers: Headers) -> Any:  # noqa: ARG002 - as all serdes
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise _unreadable(topic, part, f"is no UTF-8: {error}") from None


class Json:
    """With a dataclass or a pydantic model as `into` that is what comes out; else dicts, lists, texts and numbers."""

    def __init__(self, into: type[Any] | None = None) -> None:
        self._into = into
        self._is_model = hasattr(into, "model_validate_json")
        if into is not None and not self._is_model and not is_dataclass(into):
            raise TypeError(f"{into.__name__} is neither a dataclass nor a pydantic model: JSON cannot be read into it")

    def serialize(self, value: Any, topic: str, part: Part) -> bytes | None:
        if value is None:
            return None
        try:
            if hasattr(value, "model_dump_json"):
                return str(value.model_dump_json()).encode()
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_plain).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise _misfit(value, topic, part, f"it cannot be written as JSON: {error}") from None

    def deserialize(self, data: bytes | None, topic: str, part: Part, headers: Headers) -> Any:  # noqa: ARG002 - as all serdes
        if data is None:
            return None
        try:
            if self._is_model:
                assert self._into is not None
                return self._into.model_validate_json(data)
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _unreadable(topic, part, f"is not the JSON that was expected: {error}") from None
        return found if self._into is None else _into_dataclass(self._into, found, topic, part)


class ByType:
    """bytes as they are, str as UTF-8, and dicts, lists, dataclasses and pydantic models as JSON. Reads bytes."""

    def serialize(self, value: Any, topic: str, part: Part) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return _TEXT.serialize(value, topic, part)
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        if isinstance(value, dict | list | tuple) or is_dataclass(value) or hasattr(value, "model_dump_json"):
            return _JSON.serialize(value, topic, part)
        raise _misfit(value, topic, part, "give it as bytes, str, dict, list or a dataclass, or name a serde")

    def deserialize(self, data: bytes | None, topic: str, part: Part, headers: Headers) -> Any:  # noqa: ARG002 - as all serdes
        return data


_TEXT, _JSON = Text(), Json()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _into_dataclass(into: type[Any], found: Any, topic: str, part: Part) -> Any:
    """Its fields by name; what it does not have is left out, so that a writer may add fields before its readers."""
    if not isinstance(found, dict):
        raise _unreadable(topic, part, f"is JSON, but no object that {into.__name__} could be made of")
    try:
        return into(**{field.name: found[field.name] for field in fields(into) if field.name in found and field.init})
    except (TypeError, ValueError) as error:
        raise _unreadable(topic, part, f"does not make a {into.__name__}: {error}") from None


def _misfit(value: Any, topic: str, part: Part, why: str) -> SerializationError:
    return SerializationError(f"a {part} of type {type(value).__name__} cannot be written to topic {topic}: {why}")


def _unreadable(topic: str, part: Part, why: str) -> DeserializationError:
    return DeserializationError(f"a {part} of topic {topic} {why}")
