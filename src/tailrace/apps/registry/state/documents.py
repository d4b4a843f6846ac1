"""Metadata and rules that travel with a schema: brought into Confluent's form and order, checked, and part of what
makes two schemas equal.

The guid of a schema is the MD5 of its text, references, metadata and rules, as Confluent computes it, so that every
registry gives the same schema the same guid. Rules that encrypt need key management that a registry alone does not
have: they are refused, since kept in silence they would let people believe that their fields are encrypted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from tailrace.apps.registry.errors import RegistryError, invalid_rules

Document = dict[str, Any]

_CONFLUENT_VERSION = "confluent:version"
_RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")
_RULE_TEXTS = ("name", "doc", "kind", "mode", "type")
_MIGRATION_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_DOMAIN_MODES = ("WRITE", "READ", "WRITEREAD")
_ENCRYPTION_TYPES = ("ENCRYPT", "ENCRYPT_PAYLOAD")
_RULE_NAME_MAX = 64


def read_metadata(raw: Any) -> Document | None:
    """Sorted as Confluent sorts it. Raises RegistryError for what is no metadata."""
    if raw is None:
        return None
    tags, properties = _mapping(raw, "tags", "metadata"), _mapping(raw, "properties", "metadata")
    metadata: Document = {}
    if tags:
        metadata["tags"] = {name: sorted({str(each) for each in _listed(tags[name], "tags")}) for name in sorted(tags)}
    if properties:
        metadata["properties"] = {name: str(properties[name]) for name in sorted(properties)}
    if sensitive := _listed(raw.get("sensitive"), "sensitive"):
        metadata["sensitive"] = sorted({str(each) for each in sensitive})
    return metadata


def read_rules(raw: Any) -> Document | None:
    """In Confluent's order of fields. Raises RegistryError for rules that are not valid, or that encrypt."""
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise invalid_rules("a ruleSet is an object with migrationRules, domainRules or encodingRules")
    rules: Document = {}
    names: set[str] = set()
    for kind in _RULE_LISTS:
        found = [_read_rule(kind, each) for each in _listed(raw.get(kind), kind)]
        for rule in found:
            if rule["name"] in names:
                raise invalid_rules(f"Found rule with duplicate name '{rule['name']}'")
            names.add(rule["name"])
        if found:
            rules[kind] = found
    if raw.get("enableAt"):
        rules["enableAt"] = str(raw["enableAt"])
    return rules


def _read_rule(kind: str, raw: Any) -> Document:
    if not isinstance(raw, dict):
        raise invalid_rules(f"each of {kind} is an object")
    rule: Document = {name: str(raw[name]) for name in _RULE_TEXTS if raw.get(name) is not None}
    _check_name(rule.get("name"))
    if "type" not in rule:
        raise invalid_rules("Missing rule type")
    modes = _MIGRATION_MODES if kind == "migrationRules" else _DOMAIN_MODES
    if rule.get("mode") not in modes:
        raise invalid_rules(f"{kind.removesuffix('Rules').capitalize()} rules can only be {', '.join(modes)}")
    if rule["type"].upper() in _ENCRYPTION_TYPES:
        raise invalid_rules(
            f"rule '{rule['name']}' encrypts: this registry has no key management (a DEK registry), so readers could "
            "not decrypt; encrypt in the application, or leave the rule out"
        )
    if tags := _listed(raw.get("tags"), "tags"):
        rule["tags"] = sorted({str(each) for each in tags})
    if params := _mapping(raw, "params", "rule"):
        rule["params"] = {name: str(params[name]) for name in sorted(params)}
    for name in ("expr", "onSuccess", "onFailure"):
        if raw.get(name):
            rule[name] = str(raw[name])
    rule["disabled"] = raw.get("disabled") is True
    return rule


def _check_name(name: str | None) -> None:
    if not name:
        raise invalid_rules("Missing rule name" if name is None else "Empty rule name")
    if len(name) > _RULE_NAME_MAX:
        raise invalid_rules("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise invalid_rules(f"Illegal initial character in rule name: {name}")
    if not all(each.isalnum() or each in "_-" for each in name):
        raise invalid_rules(f"Illegal character in rule name: {name}")


def _mapping(raw: Any, name: str, owner: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise RegistryError(422, 422, f"{owner} is not an object")
    found = raw.get(name) or {}
    if not isinstance(found, dict):
        raise RegistryError(422, 422, f"{owner}.{name} is not an object")
    return found


def _listed(raw: Any, name: str) -> list[Any]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise RegistryError(422, 422, f"{name} is not a list")
    return raw


# --- what the settings of a subject add to a schema


def merge_metadata(under: Document | None, over: Document | None) -> Document | None:
    """Properties and tags of `over` win."""
    if under is None or over is None:
        return over if under is None else under
    merged: Document = {}
    for name in ("tags", "properties"):
        both = {**under.get(name, {}), **over.get(name, {})}
        if both:
            merged[name] = {key: both[key] for key in sorted(both)}
    if sensitive := {*under.get("sensitive", ()), *over.get("sensitive", ())}:
        merged["sensitive"] = sorted(sensitive)
    return merged


def merge_rules(under: Document | None, over: Document | None) -> Document | None:
    """A rule of `over` takes the place of the one of the same name."""
    if under is None or over is None:
        return over if under is None else under
    merged: Document = {}
    for kind in _RULE_LISTS:
        newer = over.get(kind, [])
        names = {rule["name"] for rule in newer}
        both = [rule for rule in under.get(kind, []) if rule["name"] not in names] + newer
        if both:
            merged[kind] = both
    if enabled := over.get("enableAt") or under.get("enableAt"):
        merged["enableAt"] = enabled
    return merged


def confluent_version(metadata: Document | None) -> str | None:
    found: str | None = (metadata or {}).get("properties", {}).get(_CONFLUENT_VERSION)
    return found


def set_confluent_version(metadata: Document | None, version: int) -> Document:
    merged = merge_metadata(metadata, {"properties": {_CONFLUENT_VERSION: str(version)}})
    assert merged is not None
    return merged


# --- equality


def guid_of(text: str, references: Iterable[Document], metadata: Document | None, rules: Document | None) -> str:
    md5 = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for reference in references:
        md5.update(reference["name"].encode() + reference["subject"].encode())
        md5.update(int(reference["version"]).to_bytes(4, "big", signed=True))
    if metadata is not None:
        md5.update(b"\x01" + b"".join(_metadata_parts(metadata)))
    if rules is not None:
        md5.update(b"\x01" + b"".join(_rules_parts(rules)))
    return str(UUID(bytes=md5.digest()))


def _metadata_parts(metadata: Document) -> Iterable[bytes]:
    for name, tags in metadata.get("tags", {}).items():
        yield name.encode() + "".join(tags).encode()
    for name, text in metadata.get("properties", {}).items():
        yield name.encode() + text.encode()
    yield "".join(metadata.get("sensitive", ())).encode()


def _rules_parts(rules: Document) -> Iterable[bytes]:
    for kind in _RULE_LISTS:
        for rule in rules.get(kind, ()):
            yield "".join(rule.get(name, "") for name in _RULE_TEXTS).encode()
            yield "".join(rule.get("tags", ())).encode()
            yield "".join(name + text for name, text in rule.get("params", {}).items()).encode()
            yield "".join(rule.get(name, "") for name in ("expr", "onSuccess", "onFailure")).encode()
            if rule.get("disabled"):
                yield b"\x01"
    yield rules.get("enableAt", "").encode()
