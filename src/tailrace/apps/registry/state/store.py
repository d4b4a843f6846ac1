"""What `_schemas` says, record by record: `replay_record` is the only one that changes it.

An id is a schema within its context, and stays readable while any version that has it is there, soft-deleted ones too:
data was written with it. Numbers that were given out once are not given out again while this process knows of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tailrace.apps.registry.state import records
from tailrace.apps.registry.state.documents import guid_of
from tailrace.apps.registry.state.names import (
    DEFAULT_CONTEXT,
    EVERY_CONTEXT,
    GLOBAL_CONTEXT,
    context_of,
    context_prefix,
    has_prefix,
    is_context,
    parse_subject,
    qualify,
)
from tailrace.apps.registry.state.records import DamagedRecordError, Key, Reference, SchemaValue
from tailrace.schemas import PROTOBUF

READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
LATEST = -1


class Version(NamedTuple):
    """A schema as one version of a subject."""

    subject: str
    version: int
    guid: str
    value: SchemaValue
    timestamp_ms: int

    @property
    def id(self) -> int:
        return self.value.id

    @property
    def is_deleted(self) -> bool:
        return self.value.is_deleted


Place = tuple[str, int]  # A subject and a version.


class State:
    def __init__(
        self, *, compatibility: str = "BACKWARD", mode: str = READWRITE, references_depth_max: int = 100
    ) -> None:
        self.default_compatibility = compatibility
        self.default_mode = mode
        # Schemas that refer to schemas that refer to schemas: a topic that was tampered with may have a ring.
        self.references_depth_max = references_depth_max
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.contexts: set[str] = set()  # Besides the default one.
        # The number that changes with every record: answers that were made before it may be old.
        self.revision = 0
        self._subjects: dict[str, dict[int, Version]] = {}  # Versions in order.
        self._by_id: dict[str, dict[int, dict[Place, None]]] = {}
        self._ids: dict[str, dict[str, int]] = {}  # By context and guid.
        self._max_ids: dict[str, int] = {}
        self._referrers: dict[Place, set[Place]] = {}

    # --- replaying

    def replay_record(self, key_bytes: bytes | None, value: bytes | None, timestamp_ms: int) -> None:
        """Raises DamagedRecordError, and then nothing has changed."""
        key = records.read_key(key_bytes)
        value = value or None  # Karapace writes an empty value for a tombstone.
        if key is None or key.kind == records.NOOP:
            return
        if key.kind == records.SCHEMA:
            self._replay_schema(key, None if value is None else records.read_schema(value), timestamp_ms)
        elif key.kind == records.CONTEXT:
            self.contexts.discard(key.context) if value is None else self.contexts.add(key.context)
        elif value is None:
            (self.configs if key.kind == records.CONFIG else self.modes).pop(key.subject, None)
        elif key.kind == records.CONFIG:
            self.configs[key.subject] = records.read_config(value)
        elif key.kind == records.MODE:
            mode = records.read_mode(value)
            if mode not in MODES:
                raise DamagedRecordError(f"mode {mode} is not known")
            self.modes[key.subject] = mode
        elif key.kind == records.DELETE_SUBJECT:
            assert key.subject is not None, "it was read so"
            self._replay_subject_deletion(key.subject, records.read_deleted_version(value))
        else:
            self._replay_clearing(key.subject)
        self.revision += 1

    def _replay_schema(self, key: Key, value: SchemaValue | None, timestamp_ms: int) -> None:
        assert key.subject is not None, "it was read so"
        if value is None:
            self._remove(key.subject, key.version)
            return
        documents = [reference.document for reference in value.references]
        guid = guid_of(value.text, documents, value.metadata, value.rules)
        context = context_of(key.subject)
        known = self.version_by_id(context, value.id)
        is_alone = known is None or (known.subject, known.version) == (key.subject, key.version)
        if known is not None and known.guid != guid and not is_alone and not _is_respelled(known.value, value):
            raise DamagedRecordError(
                f"id {value.id} is another schema already, that of {known.subject} {known.version}"
            )
        self._remove(key.subject, key.version)
        if known is not None and known.guid == guid:
            guid = known.guid  # One text in memory, however many subjects have it.
            value = value._replace(text=known.value.text)
        self._add(Version(key.subject, key.version, guid, value, timestamp_ms), context)

    def _add(self, version: Version, context: str) -> None:
        subject = version.subject
        place = subject, version.version
        versions = self._subjects.setdefault(subject, {})
        is_last = not versions or next(reversed(versions)) < version.version
        versions[version.version] = version
        if not is_last:
            self._subjects[subject] = dict(sorted(versions.items()))
        self._by_id.setdefault(context, {}).setdefault(version.id, {})[place] = None
        self._ids.setdefault(context, {}).setdefault(version.guid, version.id)
        self._max_ids[context] = max(self._max_ids.get(context, 0), version.id)
        if context != DEFAULT_CONTEXT:
            self.contexts.add(context)
        for target in self._targets(version):
            self._referrers.setdefault(target, set()).add(place)

    def _remove(self, subject: str, number: int) -> None:
        versions = self._subjects.get(subject, {})
        version = versions.pop(number, None)
        if version is None:
            return
        if not versions:
            del self._subjects[subject]
        context, place = context_of(subject), (subject, number)
        places = self._by_id[context][version.id]
        del places[place]
        if not places:
            del self._by_id[context][version.id]
            if self._ids[context].get(version.guid) == version.id:
                del self._ids[context][version.guid]
        for target in self._targets(version):
            self._referrers[target].discard(place)

    def _targets(self, version: Version) -> Iterable[Place]:
        return [(qualify(version.subject, each.subject), each.version) for each in version.value.references]

    def _replay_subject_deletion(self, subject: str, last: int) -> None:
        versions = self._subjects.get(subject, {})
        for number, version in versions.items():
            if number <= last and not version.is_deleted:
                versions[number] = version._replace(value=version.value._replace(is_deleted=True))

    def _replay_clearing(self, name: str | None) -> None:
        for subject in [each for each in self._subjects if _is_meant(name, each)]:
            for number in [number for number, each in self._subjects[subject].items() if each.is_deleted]:
                self._remove(subject, number)

    # --- versions

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Of one subject, in order."""
        return [each for each in self._subjects.get(subject, {}).values() if deleted or not each.is_deleted]

    def find(self, subject: str, number: int, *, deleted: bool = False) -> Version | None:
        """LATEST is the last that is not deleted, or with `deleted` the last of all."""
        versions = self._subjects.get(subject)
        if versions is None:
            return None
        if number != LATEST:
            found = versions.get(number)
            return found if found is not None and (deleted or not found.is_deleted) else None
        return next((each for each in reversed(versions.values()) if deleted or not each.is_deleted), None)

    def same_subjects(self, subject: str) -> list[str]:
        """A subject without a context stands for that of every context, the default one first."""
        context, name = parse_subject(subject)
        if context != DEFAULT_CONTEXT:
            return [subject]
        return [subject, *(f"{context_prefix(each)}{name}" for each in sorted(self.contexts))]

    def has_subjects(self, name: str | None, *, deleted: bool) -> bool:
        """`name` may be a context, or None for all."""
        return any(True for _ in self.subjects_meant(name, deleted=deleted))

    def subjects_meant(self, name: str | None, *, deleted: bool) -> Iterator[str]:
        candidates: Iterable[str] = self._subjects if name is None or is_context(name) else (name,)
        for subject in candidates:
            if _is_meant(name, subject) and self.find(subject, LATEST, deleted=deleted) is not None:
                yield subject

    def subjects(self, prefix: str = EVERY_CONTEXT, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Those whose names begin so, sorted; `:*:` stands for any context."""
        chosen = []
        for subject in self._subjects:
            if has_prefix(subject, prefix):
                is_gone = self.find(subject, LATEST) is None
                if is_gone if deleted_only else deleted or not is_gone:
                    chosen.append(subject)
        return sorted(chosen)

    # --- ids

    def version_by_id(self, context: str, schema_id: int) -> Version | None:
        places = self._by_id.get(context, {}).get(schema_id)
        if not places:
            return None
        subject, number = next(iter(places))
        return self._subjects[subject][number]

    def versions_by_id(self, context: str, schema_id: int) -> list[Version]:
        return [self._subjects[subject][number] for subject, number in self._by_id.get(context, {}).get(schema_id, ())]

    def id_of(self, context: str, guid: str) -> int | None:
        return self._ids.get(context, {}).get(guid)

    def max_id(self, context: str) -> int:
        return self._max_ids.get(context, 0)

    def all_contexts(self) -> list[str]:
        return [DEFAULT_CONTEXT, *sorted(self.contexts)]

    def referrers(self, subject: str, number: int, *, deleted: bool) -> list[Version]:
        """Who refers to a version, by context and id."""
        found = [self._subjects[name][each] for name, each in self._referrers.get((subject, number), ())]
        return sorted(
            (each for each in found if deleted or not each.is_deleted),
            key=lambda each: (context_of(each.subject), each.id),
        )

    @property
    def version_count(self) -> int:
        return sum(map(len, self._subjects.values()))

    # --- settings

    def config_in_scope(self, subject: str | None) -> dict[str, Any]:
        """What holds for a subject: its own settings over those of its context, or of all."""
        own = {} if subject is None else self.configs.get(subject, {})
        context = context_of(subject)
        outer = self.configs.get(None if context == DEFAULT_CONTEXT else context_prefix(context))
        if outer is None:
            outer = self.configs.get(context_prefix(GLOBAL_CONTEXT), {})
        return {"compatibilityLevel": self.default_compatibility, **outer, **own}

    def mode_in_scope(self, subject: str | None) -> str:
        if self.modes.get(None) == READONLY_OVERRIDE:
            return READONLY_OVERRIDE
        context = context_of(subject)
        for name in (subject, None if context == DEFAULT_CONTEXT else context_prefix(context)):
            if name in self.modes:
                return self.modes[name]
        return self.modes.get(context_prefix(GLOBAL_CONTEXT), self.default_mode)

    def resolve_alias(self, subject: str) -> str:
        alias = self.configs.get(subject, {}).get("alias")
        return qualify(subject, alias) if isinstance(alias, str) and alias else subject

    def aliases(self, prefix: str) -> dict[str, list[str]]:
        """Which names that begin so stand for a subject."""
        found: dict[str, list[str]] = {}
        for name in sorted(each for each in self.configs if each is not None and has_prefix(each, prefix)):
            if (subject := self.resolve_alias(name)) != name:
                found.setdefault(subject, []).append(name)
        return found


def _is_respelled(one: SchemaValue, other: SchemaValue) -> bool:
    """Karapace gives one id to schemas that differ only in the order of their fields, or in blanks."""
    if (one.schema_type, one.references) != (other.schema_type, other.references):
        return False
    if one.schema_type == PROTOBUF:
        return one.text.split() == other.text.split()
    try:
        return bool(json.loads(one.text) == json.loads(other.text))
    except (ValueError, RecursionError):
        return False


def _is_meant(name: str | None, subject: str) -> bool:
    if name is None:
        return True
    context, bare = parse_subject(name)
    return name == subject or (not bare and context in (context_of(subject), GLOBAL_CONTEXT))


__all__ = ["LATEST", "MODES", "Reference", "State", "Version"]
