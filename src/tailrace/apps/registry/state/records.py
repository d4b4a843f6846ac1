"""The records of `_schemas` as bytes: JSON in Confluent's own order of fields, without blanks.

Compaction compares keys byte by byte, so one order is written, whatever order is read: other registries have written
others. A key or value that cannot be read raises DamagedRecordError; a kind of key that is not known gives None, for a
newer registry may have written it.

    SCHEMA          a version of a subject; a tombstone removes it for good
    DELETE_SUBJECT  all versions of a subject up to one are soft-deleted
    CLEAR_SUBJECT   soft-deleted versions are gone: a subject is about to be imported
    CONFIG, MODE    settings of a subject, of a context, or of all
    CONTEXT         a context that has subjects
    NOOP            nothing: who has read it has read everything before it
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from tailrace.schemas import LEVELS

Document = dict[str, Any]

SCHEMA, CONFIG, MODE, CONTEXT = "SCHEMA", "CONFIG", "MODE", "CONTEXT"
DELETE_SUBJECT, CLEAR_SUBJECT, NOOP = "DELETE_SUBJECT", "CLEAR_SUBJECT", "NOOP"
AVRO = "AVRO"
_KNOWN = frozenset({SCHEMA, CONFIG, MODE, CONTEXT, DELETE_SUBJECT, CLEAR_SUBJECT, NOOP})
_TENANT = "default"

NOOP_KEY = b'{"keytype":"NOOP","magic":0}'

# The settings of a subject or context, in their order.
CONFIG_FIELDS = (
    "alias",
    "aliasForDeks",
    "normalize",
    "validateFields",
    "validateNewSchemas",
    "validateRules",
    "compatibilityLevel",
    "compatibilityPolicy",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)


class DamagedRecordError(ValueError):
    """It is no record of a registry; the message says why."""


class Key(NamedTuple):
    kind: str
    subject: str | None = None
    version: int = 0
    context: str = ""


class Reference(NamedTuple):
    name: str
    subject: str
    version: int

    @property
    def document(self) -> Document:
        return {"name": self.name, "subject": self.subject, "version": self.version}


class SchemaValue(NamedTuple):
    id: int
    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Document | None = None
    rules: Document | None = None
    is_deleted: bool = False


class Record(NamedTuple):
    """What is appended; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


# --- writing


def schema_key(subject: str, version: int) -> bytes:
    return _bytes({"keytype": SCHEMA, "subject": subject, "version": version, "magic": 1})


def subject_key(kind: str, subject: str | None) -> bytes:
    """Of CONFIG, MODE, DELETE_SUBJECT and CLEAR_SUBJECT."""
    named = {} if not subject else {"subject": subject}
    return _bytes({"keytype": kind, **named, "magic": 0})


def context_record(context: str, *, is_gone: bool = False) -> Record:
    key = _bytes({"keytype": CONTEXT, "tenant": _TENANT, "context": context, "magic": 0})
    return Record(key, None if is_gone else _bytes({"tenant": _TENANT, "context": context}))


def schema_record(subject: str, version: int, value: SchemaValue | None) -> Record:
    if value is None:
        return Record(schema_key(subject, version), None)
    document: Document = {"subject": subject, "version": version, "id": value.id}
    if value.schema_type != AVRO:
        document["schemaType"] = value.schema_type
    if value.references:
        document["references"] = [reference.document for reference in value.references]
    if value.metadata is not None:
        document["metadata"] = value.metadata
    if value.rules is not None:
        document["ruleSet"] = value.rules
    document |= {"schema": value.text, "deleted": value.is_deleted}
    return Record(schema_key(subject, version), _bytes(document))


def config_record(subject: str | None, config: Document | None) -> Record:
    key = subject_key(CONFIG, subject)
    if config is None:
        return Record(key, None)
    fields = {name: config[name] for name in CONFIG_FIELDS if config.get(name) is not None}
    return Record(key, _bytes({**_named(subject), **fields}))


def mode_record(subject: str | None, mode: str | None) -> Record:
    return Record(subject_key(MODE, subject), None if mode is None else _bytes({**_named(subject), "mode": mode}))


def delete_subject_record(subject: str, version: int) -> Record:
    return Record(subject_key(DELETE_SUBJECT, subject), _bytes({"subject": subject, "version": version}))


def clear_subject_record(subject: str | None) -> Record:
    return Record(subject_key(CLEAR_SUBJECT, subject), _bytes(_named(subject)))


def _named(subject: str | None) -> Document:
    return {"subject": subject} if subject else {}


def _bytes(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


# --- reading


def read_key(data: bytes | None) -> Key | None:
    document = _document(data, "key")
    kind = document.get("keytype")
    if not isinstance(kind, str):
        raise DamagedRecordError("its key has no keytype")
    if kind not in _KNOWN:
        return None
    if kind == NOOP:
        return Key(NOOP)
    if kind == CONTEXT:
        return Key(CONTEXT, context=_text(document, "context"))
    if kind == SCHEMA:
        return Key(SCHEMA, _text(document, "subject"), _number(document, "version", least=1))
    subject = document.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise DamagedRecordError("the subject of its key is not a text")
    if kind == DELETE_SUBJECT and not subject:
        raise DamagedRecordError("its key names no subject to delete")
    return Key(kind, subject or None)


def read_schema(data: bytes) -> SchemaValue:
    document = _document(data, "value")
    references = document.get("references") or []
    if not isinstance(references, list):
        raise DamagedRecordError("its references are not a list")
    return SchemaValue(
        _number(document, "id", least=0),
        str(document.get("schemaType") or AVRO),
        _text(document, "schema"),
        tuple(_reference(each) for each in references),
        _metadata(document, "metadata"),
        _rules(document, "ruleSet"),
        document.get("deleted") is True,
    )


def read_deleted_version(data: bytes) -> int:
    return _number(_document(data, "value"), "version", least=0)


def read_config(data: bytes) -> Document:
    document = _document(data, "value")
    level = document.get("compatibilityLevel")
    if level is not None and level not in LEVELS:
        raise DamagedRecordError(f"{level!r} is not a level of compatibility")
    shaped = {name: _metadata(document, name) for name in ("defaultMetadata", "overrideMetadata")}
    shaped |= {name: _rules(document, name) for name in ("defaultRuleSet", "overrideRuleSet")}
    found = {**document, **shaped}
    return {name: found[name] for name in CONFIG_FIELDS if found.get(name) is not None}


def read_mode(data: bytes) -> str:
    return _text(_document(data, "value"), "mode")


def _reference(raw: Any) -> Reference:
    if not isinstance(raw, dict):
        raise DamagedRecordError("one of its references is not an object")
    return Reference(_text(raw, "name"), _text(raw, "subject"), _number(raw, "version", least=-1))


def _metadata(document: Document, name: str) -> Document | None:
    found = _object(document, name)
    if found is not None:
        is_fine = (
            all(_are_texts(tags, list) for tags in _values(found, "tags"))
            and _are_texts(list(_values(found, "properties")), list)
            and _are_texts(found.get("sensitive", []), list)
        )
        if not is_fine:
            raise DamagedRecordError(f"its {name} has something that is not a text")
    return found


def _rules(document: Document, name: str) -> Document | None:
    """Their shape alone: what they may say is checked where they are registered."""
    found = _object(document, name)
    for kind, rules in (found or {}).items():
        if kind == "enableAt" and isinstance(rules, str):
            continue
        for rule in rules if isinstance(rules, list) else (None,):
            is_fine = isinstance(rule, dict) and isinstance(rule.get("name"), str)
            for key, value in rule.items() if isinstance(rule, dict) else ():
                kinds = {"tags": list, "params": dict, "disabled": bool}.get(key, str)
                is_fine = is_fine and isinstance(value, kinds) and (kinds in (str, bool) or _are_texts(value, kinds))
            if not is_fine:
                raise DamagedRecordError(f"its {name} has {kind} that are no rules")
    return found


def _object(document: Document, name: str) -> Document | None:
    """Without what is null in it, which some write and others leave out."""
    found = _without_nulls(document.get(name))
    if not isinstance(found, dict | None):
        raise DamagedRecordError(f"its {name} is not an object")
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _values(document: Document, name: str) -> Iterable[Any]:
    found = document.get(name, {})
    return found.values() if isinstance(found, dict) else (None,)


def _are_texts(value: Any, kind: type) -> bool:
    texts = value.values() if isinstance(value, dict) else value
    return isinstance(value, kind) and all(isinstance(each, str) for each in texts)


def _document(data: bytes | None, part: str) -> Document:
    if data is None:
        raise DamagedRecordError(f"it has no {part}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedRecordError(f"its {part} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise DamagedRecordError(f"its {part} is not a JSON object")
    return document


def _text(document: Document, name: str) -> str:
    found = document.get(name)
    if not isinstance(found, str):
        raise DamagedRecordError(f"{name} is not a text")
    return found


def _number(document: Document, name: str, *, least: int) -> int:
    found = document.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found < 1 << 31:
        raise DamagedRecordError(f"{name} is not a number from {least} on")
    return found
