"""Keys and values with a schema, on the command line: shown as JSON, and written from JSON.

Who asks the registry is told by the address (http://user:password@host) or by SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO, as
Confluent's commands have it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.cli import CommandError

if TYPE_CHECKING:
    from tailrace.real.registry.client import RegistryClient
    from tailrace.wire.records import Record

USER_INFO = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"
_PARTS = {"value": ("value",), "key": ("key",), "both": ("key", "value")}


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--schema-registry",
        metavar="URL",
        help="decode what Confluent's serializers wrote, with the schemas of this registry",
    )
    parser.add_argument("--schema-of", choices=_PARTS, default="value", help="what has a schema (default: value)")


def add_encoding_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--schema-registry", metavar="URL", help="values are JSON: encode them with a schema of this registry"
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--value-schema", metavar="FILE", help="register this schema (.avsc, .json, .proto) and use it")
    chosen.add_argument(
        "--value-schema-id", type=int, metavar="ID", help="use this one (default: the subject's latest)"
    )
    parser.add_argument("--subject", metavar="NAME", help="where to look or register (default: TOPIC-value)")
    parser.add_argument("--message", metavar="NAME", help="which message of a Protobuf schema (default: the first)")


def record_decoder(options: argparse.Namespace) -> Callable[[Record], Record] | None:
    """Makes JSON of what has a schema. None if nothing is to be decoded."""
    if options.schema_registry is None:
        return None
    return _Decoder(_client(options.schema_registry), _PARTS[options.schema_of]).decode


class _Decoder:
    def __init__(self, client: RegistryClient, parts: tuple[str, ...]) -> None:
        self._client = client
        self._parts = parts
        self._decoders: dict[int | str, Callable[[bytes], str]] = {}

    def decode(self, record: Record) -> Record:
        if "key" in self._parts:
            record = record._replace(key=self._content(record, "key"))
        return record._replace(value=self._content(record, "value")) if "value" in self._parts else record

    def _content(self, record: Record, part: str) -> bytes | None:
        from tailrace.real.registry.client import RegistryError
        from tailrace.schemas.codecs import CodecError, decoder
        from tailrace.schemas.framing import FramingError, read_frame

        content = record.value if part == "value" else record.key
        if content is None:
            return None
        try:
            named, start = read_frame(content, part, record.headers)
            if named not in self._decoders:
                self._decoders[named] = decoder(self._client.schema(named))
            return self._decoders[named](content[start:]).encode()
        except (FramingError, CodecError, UnicodeDecodeError, RegistryError) as error:
            raise CommandError(
                f"the {part} of the record at offset {record.offset} cannot be decoded: {error}; read it without "
                "--schema-registry to see its bytes"
            ) from None


def value_encoder(options: argparse.Namespace) -> Callable[[bytes, str], bytes] | None:
    """Makes the bytes of a record of JSON, told the place of which errors speak. None if nothing is to be encoded."""
    if options.schema_registry is None:
        given = [name for name in ("value_schema", "value_schema_id", "subject", "message") if getattr(options, name)]
        if given:
            raise CommandError(f"--{given[0].replace('_', '-')} needs --schema-registry URL")
        return None
    from tailrace.real.registry.client import RegistryError
    from tailrace.schemas.codecs import CodecError, encoder
    from tailrace.schemas.framing import write_prefix

    client = _client(options.schema_registry)
    subject = options.subject or f"{options.topic}-value"
    try:
        if options.value_schema is not None:
            schema_id = client.register(subject, *_read_schema(options.value_schema))
        elif options.value_schema_id is not None:
            schema_id = options.value_schema_id
        else:
            schema_id = client.version(subject).schema_id
        encode = encoder(client.schema(schema_id), options.message)
    except (RegistryError, CodecError) as error:
        raise CommandError(str(error)) from None
    prefix = write_prefix(schema_id)

    def encoded(line: bytes, where: str) -> bytes:
        try:
            return prefix + encode(line.decode())
        except (CodecError, UnicodeDecodeError) as error:
            raise CommandError(f"{where}: {error}") from None

    return encoded


def _client(url: str) -> RegistryClient:
    from tailrace.real.registry.client import RegistryAddress, RegistryClient

    try:
        return RegistryClient(RegistryAddress(url, os.environ.get(USER_INFO)))
    except ValueError as error:
        raise CommandError(f"--schema-registry: {error}") from None


def _read_schema(path: str) -> tuple[str, str]:
    """Its type, by the name of the file, and its text."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from None
    if path.endswith(".proto"):
        return "PROTOBUF", text
    return ("AVRO" if path.endswith(".avsc") else "JSON"), text
