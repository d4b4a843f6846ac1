"""Writes docs/protocol.md from the message declarations: `python docs/protocol_page.py`. A test checks it."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tailrace.catalogue import CATALOGUE
from tailrace.wire import frame
from tailrace.wire.apis import (
    admin,
    data,
    groups,
    mirrors,
    own,
    quorum,
    request_type,
    security,
    shares,
    stored_records,
    telemetry,
    transactions,
)
from tailrace.wire.schema import Field, Message, Struct

PAGE = Path(__file__).with_name("protocol.md")
SECTIONS: dict[str, ModuleType] = {
    "Headers": frame,
    "Data": data,
    "Admin": admin,
    "Groups": groups,
    "Share groups": shares,
    "Transactions": transactions,
    "Security": security,
    "Telemetry": telemetry,
    "Quorum": quorum,
    "Stored records": stored_records,
    "Ours alone": own,
    "Ours alone: mirrors": mirrors,
}
INTRODUCTION = """\
# The wire protocol, as declared

Generated from the classes in `src/tailrace/wire` and the catalogue of APIs (`src/tailrace/catalogue.py`) by
`docs/protocol_page.py`. Declared is not yet served: below each request that is stands to whom it is served, in which
versions, and who answers it.

A line is a field: name, type, the versions that have it, then what is special about it. Fields of a struct are
indented below it. In flexible versions lengths are compact and structs end with tagged fields (KIP-482). Without a
default it is 0, false, empty, or a struct of defaults.
"""


def page() -> str:
    return "\n".join([INTRODUCTION, *(line for title, module in SECTIONS.items() for line in section(title, module))])


def section(title: str, module: ModuleType) -> Iterator[str]:
    yield f"## {title}\n"
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__:
            yield from message(value)


def message(cls: type[Message]) -> Iterator[str]:
    key = f", key {cls.api_key}" if cls.api_key >= 0 else ""
    key += f", record type {cls.record_type}" if cls.record_type >= 0 else ""
    flexible = f", flexible from {cls.flexible.start}" if cls.flexible else ", never flexible"
    yield f"### {cls.__name__}\n"
    yield f"Versions {versions(cls.versions)}{flexible}{key}."
    if (served := _served(cls)) and cls.__name__.endswith("Request"):
        yield "\n" + served
    if cls.__doc__:
        yield "\n" + " ".join(cls.__doc__.split())
    lines = list(fields(cls, ""))
    if lines:
        yield "\n".join(["\n```", *lines, "```"])
    yield ""


def _served(cls: type[Message]) -> str:
    api = CATALOGUE.get(cls.api_key)
    if api is None or cls is not request_type(cls.api_key):
        return ""
    audiences = (("clients", api.for_clients), ("controllers and brokers", api.for_controllers))
    told = [f"to {who} in {each.version_min} to {each.version_max}" for who, each in audiences if each is not None]
    return f"Served {' and '.join(told)}; answered by {api.answered_by.value}."


def fields(cls: type[Struct], indent: str) -> Iterator[str]:
    for field in cls.fields:
        yield f"{indent + field.name:<40} {kind(field):<12} {versions(field.versions):<6}{remarks(field)}".rstrip()
        if field.struct is not None:
            yield from fields(field.struct, indent + "  ")


def kind(field: Field) -> str:
    item = "struct" if field.struct is not None else field.item
    return f"[{item}]" if field.kind == "array" else field.kind


def remarks(field: Field) -> str:
    found = [f"nullable {versions(field.nullable)}"] if field.nullable else []
    if field.tag is not None:
        found.append(f"tag {field.tag}")
    if field.kind not in ("array", "struct", "uuid", "records") and field.default:
        found.append(f"default {field.default}")
    elif field.default is None and field.kind != "records":
        found.append("default null")
    if not field.flexible:
        found.append("never compact")
    return ", ".join(found)


def versions(span: range) -> str:
    if span.stop > 1 << 14:
        return f"{span.start}+"
    return f"{span.start}-{span.stop - 1}" if len(span) > 1 else str(span.start)


if __name__ == "__main__":
    PAGE.write_text(page())
