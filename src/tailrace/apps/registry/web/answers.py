"""Versions of schemas as JSON, and schemas that clients send as what the state knows."""

from __future__ import annotations

from typing import Any

from tailrace.apps.registry.errors import RegistryError, invalid_schema
from tailrace.apps.registry.state.deciding import NewSchema
from tailrace.apps.registry.state.documents import read_metadata, read_rules
from tailrace.apps.registry.state.records import AVRO, Reference
from tailrace.apps.registry.state.store import Version

_NO_ID, _NO_VERSION = -1, 0


def schema_fields(version: Version, text: str) -> dict[str, Any]:
    """What a schema is, wherever it is told. The type is left out if it is AVRO, as ever."""
    value = version.value
    fields: dict[str, Any] = {} if value.schema_type == AVRO else {"schemaType": value.schema_type}
    if value.references:
        fields["references"] = [reference.document for reference in value.references]
    if value.metadata is not None:
        fields["metadata"] = value.metadata
    if value.rules is not None:
        fields["ruleSet"] = value.rules
    return fields | {"schema": text}


def version_answer(version: Version, text: str) -> dict[str, Any]:
    named = {"subject": version.subject, "version": version.version, "id": version.id, "guid": version.guid}
    return {**named, **schema_fields(version, text), **_history(version)}


def registered_answer(version: Version, new: NewSchema) -> dict[str, Any]:
    """What was sent is not sent back: clients keep their own text, which may be a descriptor where ours is not. Only
    where the registry has added something they are told all of it."""
    named = {"id": version.id, "version": version.version, "guid": version.guid}
    value = version.value
    if new.text.strip() and (new.references, new.metadata, new.rules) == (
        value.references,
        value.metadata,
        value.rules,
    ):
        return named
    return {**named, **schema_fields(version, new.text if new.text.strip() else value.text)}


def string_answer(version: Version, text: str, *, is_named: bool) -> dict[str, Any]:
    """By id: a schema, and not whose."""
    named = {"subject": version.subject, "version": version.version} if is_named else {}
    return {**named, "guid": version.guid, **schema_fields(version, text), **_history(version)}


def _history(version: Version) -> dict[str, Any]:
    told: dict[str, Any] = {"ts": version.timestamp_ms}
    return {**told, "deleted": True} if version.is_deleted else told


def read_new_schema(document: dict[str, Any]) -> NewSchema:
    """Raises RegistryError."""
    text = document.get("schema")
    if text is not None and not isinstance(text, str):
        raise invalid_schema("Invalid schema, details: `schema` is a text that holds the schema, not an object")
    kind = document.get("schemaType")
    return NewSchema(
        None if kind is None else str(kind),
        text or "",
        tuple(_reference(each) for each in _listed(document.get("references"))),
        read_metadata(document.get("metadata")),
        read_rules(document.get("ruleSet")),
        _whole(document, "id", _NO_ID),
        _whole(document, "version", _NO_VERSION),
    )


def _listed(raw: Any) -> list[Any]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise RegistryError(422, 422, "references are a list")
    return raw


def _reference(raw: Any) -> Reference:
    if not isinstance(raw, dict) or not raw.get("name") or not raw.get("subject"):
        raise invalid_schema("Invalid schema, details: a reference has a name, a subject and a version")
    return Reference(str(raw["name"]), str(raw["subject"]), _whole(raw, "version", -1))


def _whole(document: dict[str, Any], name: str, default: int) -> int:
    found = document.get(name)
    if found is None:
        return default
    if not isinstance(found, int) or isinstance(found, bool) or not -1 <= found < 1 << 31:
        raise RegistryError(422, 422, f"{name} is not a number from -1 to 2^31-1")
    return found
