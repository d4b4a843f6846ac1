"""Keys and values with a schema that a schema registry keeps: Avro, JSON Schema and Protobuf, framed as Confluent's
serializers do.

A serde asks the registry when it meets a subject or an id for the first time, and remembers the answer. That blocks, so
`prepare_write` and `prepare_read` do it beforehand on a thread: producers and consumers of the kit call them. What the
registry refuses (an unknown id, for one) is remembered for a while, and told by each value that needs it; while it is
away, it is asked again for `patience_s`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from io import BytesIO
from threading import Lock
from typing import Any

from tailrace.kit.serdes.port import DeserializationError, Part, SerializationError
from tailrace.real.registry.client import RegistryAddress, RegistryClient, RegistryError
from tailrace.schemas import AVRO, JSON, PROTOBUF, ParsedSchema
from tailrace.schemas.codecs import CodecError, fastavro_schema, message_classes, message_indexes, message_name
from tailrace.schemas.framing import FramingError, read_frame, read_indexes, write_indexes, write_prefix
from tailrace.wire.payload import Headers

# How long a refusal of the registry is believed: a schema may be registered a moment later.
_REFUSAL_S = 10.0
_PAUSE_S = 0.5
_IDS_MAX = 10_000

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


class RegistrySerde:
    """What Avro, JSON Schema and Protobuf share. The subject of a topic is TOPIC-key or TOPIC-value. With a `schema`
    that is registered (or only looked up, with `register=False`) and written; else it is the subject's latest."""

    schema_type = AVRO

    def __init__(
        self,
        registry: str | RegistryAddress,
        schema: str | None = None,
        *,
        subject: str | None = None,
        register: bool = True,
        patience_s: float = 10.0,
    ) -> None:
        address = RegistryAddress(registry) if isinstance(registry, str) else registry
        self._client = RegistryClient(address)
        self._schema = schema
        self._subject = subject
        self._register = register
        self._patience_s = patience_s
        self._lock = Lock()  # One question at a time.
        self._encoders: dict[str, tuple[bytes, Encode]] = {}
        self._decoders: dict[int | str, Decode] = {}
        self._refused: dict[int | str, tuple[float, str]] = {}

    # --- writing

    def serialize(self, value: Any, topic: str, part: Part) -> bytes | None:
        if value is None:
            return None
        subject = self._subject or f"{topic}-{part}"
        found = self._encoders.get(subject) or self._learn_subject(subject, topic, part)
        prefix, encode = found
        try:
            return prefix + encode(_plain(value))
        except (LookupError, ArithmeticError, ValueError, TypeError, AttributeError) as error:
            raise SerializationError(
                f"a {part} cannot be written to topic {topic}: it does not fit the schema of {subject}: {error}"
            ) from None

    async def prepare_write(self, topic: str, part: Part) -> None:
        """Raises SerializationError."""
        subject = self._subject or f"{topic}-{part}"
        if subject not in self._encoders:
            await asyncio.to_thread(self._learn_subject, subject, topic, part)

    def _learn_subject(self, subject: str, topic: str, part: Part) -> tuple[bytes, Encode]:
        with self._lock:
            if subject in self._encoders:
                return self._encoders[subject]
            try:
                schema_id, schema = self._patiently(lambda: self._schema_of(subject))
                encoder = write_prefix(schema_id), self._encoder(schema)
            except (RegistryError, CodecError, ValueError) as error:
                raise SerializationError(f"a {part} cannot be written to topic {topic}: {error}") from None
            self._encoders[subject] = encoder
            return encoder

    def _schema_of(self, subject: str) -> tuple[int, ParsedSchema]:
        if self._schema is None:
            latest = self._client.version(subject)
            return latest.schema_id, latest.schema
        if self._register:
            schema_id = self._client.register(subject, self.schema_type, self._schema)
        else:
            schema_id = self._client.lookup(subject, self.schema_type, self._schema)
        return schema_id, self._client.schema(schema_id)

    # --- reading

    def deserialize(self, data: bytes | None, topic: str, part: Part, headers: Headers) -> Any:
        if data is None:
            return None
        try:
            named, start = read_frame(data, part, headers)
            decode = self._decoders.get(named) or self._learn_id(named)
            return decode(data[start:])
        except (FramingError, RegistryError, CodecError) as error:
            raise DeserializationError(f"a {part} of topic {topic} cannot be read: {error}") from None
        except (LookupError, ArithmeticError, ValueError, TypeError, EOFError) as error:
            raise DeserializationError(f"a {part} of topic {topic} is not of its schema: {error!r}") from None

    async def prepare_read(self, contents: Iterable[tuple[bytes | None, Headers]], part: Part) -> None:
        """Asks for the schemas of these that are not known yet; what is wrong is told when they are opened."""
        unknown = set()
        for data, headers in contents:
            if data is None or (not headers and data[:1] == b"\0" and int.from_bytes(data[1:5]) in self._decoders):
                continue
            try:
                named = read_frame(data, part, headers).schema
            except FramingError:
                continue
            if named not in self._decoders:
                unknown.add(named)
        for named in unknown:
            try:
                await asyncio.to_thread(self._learn_id, named)
            except (RegistryError, CodecError, ValueError):
                continue

    def _learn_id(self, named: int | str) -> Decode:
        with self._lock:
            if named in self._decoders:
                return self._decoders[named]
            until, why = self._refused.get(named, (0.0, ""))
            if time.monotonic() < until:
                raise RegistryError(why)
            if len(self._decoders) + len(self._refused) >= _IDS_MAX:
                self._decoders.clear()
                self._refused.clear()
            try:
                schema = self._patiently(lambda: self._client.schema(named))
            except RegistryError as error:
                self._refused[named] = time.monotonic() + _REFUSAL_S, str(error)
                raise
            decode = self._decoders[named] = self._decoder(schema)
            return decode

    def _patiently(self, question: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return question()
            except RegistryError as error:
                if not error.is_away or time.monotonic() + _PAUSE_S > deadline:
                    raise
            time.sleep(_PAUSE_S)

    # --- what each kind does

    def _encoder(self, schema: ParsedSchema) -> Encode:
        raise NotImplementedError

    def _decoder(self, schema: ParsedSchema) -> Decode:
        """Of any kind: a topic may have had another one before."""
        match schema.schema_type:
            case "AVRO":
                return _avro_decoder(schema)
            case "PROTOBUF":
                return _protobuf_decoder(schema)
        return _json_decoder


class Avro(RegistrySerde):
    """Values are dicts, or whatever else fastavro takes for the schema; dataclasses and pydantic models are written as
    dicts."""

    schema_type = AVRO

    def _encoder(self, schema: ParsedSchema) -> Encode:
        from fastavro import schemaless_writer

        to_write = fastavro_schema(schema)

        def encode(value: Any) -> bytes:
            stream = BytesIO()
            schemaless_writer(stream, to_write, value, strict_allow_default=True)
            return stream.getvalue()

        return encode


class JsonSchema(RegistrySerde):
    """Values are what JSON has. Those that are written are not compared with the schema here: a broker of ours does so
    if the topic asks for it, and so may readers."""

    schema_type = JSON

    def _encoder(self, schema: ParsedSchema) -> Encode:  # noqa: ARG002 - as the other kinds
        import json

        return lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Protobuf(RegistrySerde):
    """Values are messages of generated classes, or dicts in Protobuf's JSON; what is read are messages. `message` names
    the one of the file that is meant, else it is the first."""

    schema_type = PROTOBUF

    def __init__(
        self,
        registry: str | RegistryAddress,
        schema: str | None = None,
        *,
        message: str | None = None,
        subject: str | None = None,
        register: bool = True,
        patience_s: float = 10.0,
    ) -> None:
        super().__init__(registry, schema, subject=subject, register=register, patience_s=patience_s)
        self._message = message

    def _encoder(self, schema: ParsedSchema) -> Encode:
        from google.protobuf import json_format

        name = self._message or message_name(schema, (0,))
        prefix = write_indexes(message_indexes(schema, name))
        found = message_classes(schema)[name]

        def encode(value: Any) -> bytes:
            if hasattr(value, "SerializeToString"):
                if value.DESCRIPTOR.full_name != name:
                    raise ValueError(f"it is a {value.DESCRIPTOR.full_name}, and the topic has {name}")
                return prefix + bytes(value.SerializeToString())
            try:
                return prefix + bytes(json_format.ParseDict(value, found()).SerializeToString())
            except json_format.Error as error:
                raise ValueError(str(error)) from None

        return encode


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.model_dump() if hasattr(value, "model_dump") else value


def _avro_decoder(schema: ParsedSchema) -> Decode:
    from fastavro import schemaless_reader

    written_by = fastavro_schema(schema)

    def decode(data: bytes) -> Any:
        stream = BytesIO(data)
        value = schemaless_reader(stream, written_by, None)
        if left := len(data) - stream.tell():
            raise ValueError(f"{left} bytes are left over")
        return value

    return decode


def _json_decoder(data: bytes) -> Any:
    import json

    return json.loads(data)


def _protobuf_decoder(schema: ParsedSchema) -> Decode:
    from google.protobuf.message import DecodeError

    classes = message_classes(schema)

    def decode(data: bytes) -> Any:
        indexes, start = read_indexes(data, 0)
        message = classes[message_name(schema, indexes)]()
        try:
            message.ParseFromString(data[start:])
        except DecodeError as error:
            raise ValueError(str(error)) from None
        return message

    return decode
