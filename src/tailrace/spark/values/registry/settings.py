"""The options `schemaRegistryUrl` and what goes with it: where the registry is, who asks, and which schema is meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.real.registry.client import PATIENCE_S, RegistryAddress
from tailrace.spark.options.errors import OptionError

KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
LATEST = "latest"
_PATIENCE = "schemaRegistryPatienceMs"
_BESIDE_URL = ("schemaRegistryUserInfo", "schemaRegistryToken", "schemaRegistryCaFile", _PATIENCE)


@dataclass(frozen=True)
class Wanted:
    """What the options say of one column. Crosses to the executors by pickle."""

    column: str
    # avro, protobuf or json
    kind: str
    address: RegistryAddress
    subject: str
    # A number or `latest`; of no use if there is a schema.
    version: int | str
    schema: str | None
    # Of Protobuf; None: the first of the file.
    message: str | None


def parse_address(options: Mapping[str, str]) -> RegistryAddress | None:
    """None if there is no registry. Raises OptionError."""
    url = options.get("schemaregistryurl")
    if url is None:
        for name in _BESIDE_URL:
            if name.lower() in options:
                raise OptionError(f"option {name} needs schemaRegistryUrl: the address of a registry")
        return None
    patience = options.get(_PATIENCE.lower(), str(round(PATIENCE_S * 1000))).strip()
    if not patience.isascii() or not patience.isdigit():
        raise OptionError(f"option {_PATIENCE} is {patience!r}: expected a number of milliseconds from 0")
    address = RegistryAddress(
        url.strip(),
        options.get("schemaregistryuserinfo"),
        options.get("schemaregistrytoken"),
        options.get("schemaregistrycafile"),
        patience_s=int(patience) / 1000,
    )
    try:
        address.check()
    except ValueError as error:
        raise OptionError(f"option schemaRegistryUrl: {error}") from None
    return address


def parse_wanted(
    options: Mapping[str, str], column: str, address: RegistryAddress, topics: tuple[str, ...]
) -> Wanted | None:
    """None if the column has no format that a registry has schemas for. Raises OptionError."""
    kind = options.get(f"{column}.format", "").strip().lower()
    if kind not in KINDS:
        return None
    subject = options.get(f"{column}.schema.subject")
    if subject is None:
        if len(topics) != 1:
            raise OptionError(
                f"option {column}.schema.subject is missing: it is TOPIC-{column} for a single topic, and there is not "
                "a single one"
            )
        subject = f"{topics[0]}-{column}"
    text = options.get(f"{column}.schema.version", LATEST).strip().lower()
    if text != LATEST and (not text.isascii() or not text.isdigit() or int(text) < 1):
        raise OptionError(f"option {column}.schema.version is {text!r}: expected a number from 1, or latest")
    schema = options.get(f"{column}.schema")
    if schema is not None and f"{column}.schema.version" in options:
        raise OptionError(f"options {column}.schema and {column}.schema.version exclude each other: give one of them")
    return Wanted(
        column=column,
        kind=kind,
        address=address,
        subject=subject,
        version=LATEST if text == LATEST else int(text),
        schema=schema,
        message=options.get(f"{column}.message"),
    )
