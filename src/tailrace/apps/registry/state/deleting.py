"""Which records delete versions, subjects and contexts, and change their settings. Looks at the state and changes
nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from tailrace.apps.registry import errors
from tailrace.apps.registry.state import records
from tailrace.apps.registry.state.documents import read_metadata, read_rules
from tailrace.apps.registry.state.names import context_of, context_prefix, is_context
from tailrace.apps.registry.state.policy import POLICIES
from tailrace.apps.registry.state.records import Record
from tailrace.apps.registry.state.store import IMPORT, LATEST, MODES, READONLY, READONLY_OVERRIDE, State
from tailrace.schemas import LEVELS

# The settings that a request may name, and what the topic calls them.
_REQUEST_FIELDS = {("compatibility" if name == "compatibilityLevel" else name): name for name in records.CONFIG_FIELDS}
_FLAGS = ("normalize", "validateFields", "validateNewSchemas", "validateRules")


class Decided(NamedTuple):
    answer: Any
    records: tuple[Record, ...]


def _check_is_writable(state: State, subject: str | None) -> None:
    if state.mode_in_scope(subject) in (READONLY, READONLY_OVERRIDE):
        where = f"Subject {subject} in context {context_prefix(context_of(subject))}"
        raise errors.not_permitted(f"{where} is in read-only mode")


# --- deleting


def decide_version_deletion(state: State, subject: str, number: int, *, permanent: bool) -> Decided:
    version = state.find(subject, number, deleted=permanent or number != LATEST)
    if version is None:
        if state.has_subjects(subject, deleted=True):
            raise errors.version_not_found(number)
        raise errors.subject_not_found(subject)
    if version.is_deleted and not permanent:
        raise errors.version_soft_deleted(subject, number)
    _check_is_writable(state, subject)
    if state.referrers(subject, version.version, deleted=permanent):
        raise errors.reference_exists(subject, version.version)
    if not permanent:
        value = version.value._replace(is_deleted=True)
        return Decided(version.version, (records.schema_record(subject, version.version, value),))
    if not version.is_deleted:
        raise errors.version_not_soft_deleted(subject, version.version)
    written = [records.schema_record(subject, version.version, None)]
    if len(state.versions(subject, deleted=True)) == 1:
        written += _settings_tombstones(state, subject)
    return Decided(version.version, tuple(written))


def decide_subject_deletion(state: State, subject: str, *, permanent: bool) -> Decided:
    if is_context(subject) or not state.has_subjects(subject, deleted=True):
        raise errors.subject_not_found(subject)
    if not permanent and not state.has_subjects(subject, deleted=False):
        raise errors.subject_soft_deleted(subject)
    _check_is_writable(state, subject)
    versions = state.versions(subject, deleted=permanent)
    for version in versions:
        others = state.referrers(subject, version.version, deleted=permanent)
        if any(other.subject != subject for other in others):
            raise errors.reference_exists(subject, version.version)
        if permanent and not version.is_deleted:
            raise errors.subject_not_soft_deleted(subject)
    numbers = [version.version for version in versions]
    if not permanent:
        return Decided(numbers, (records.delete_subject_record(subject, numbers[-1]),))
    # The newest first: versions may refer to earlier ones of their own subject.
    written = [records.schema_record(subject, number, None) for number in reversed(numbers)]
    return Decided(numbers, (*written, *_settings_tombstones(state, subject)))


def _settings_tombstones(state: State, subject: str) -> list[Record]:
    found = [records.mode_record(subject, None)] if subject in state.modes else []
    return [*found, records.config_record(subject, None)] if subject in state.configs else found


def decide_context_deletion(state: State, context: str) -> Decided:
    if state.has_subjects(context_prefix(context), deleted=True):
        raise errors.context_not_empty(context_prefix(context))
    return Decided(None, (records.context_record(context, is_gone=True),))


# --- settings


def decide_config(state: State, subject: str | None, request: dict[str, Any]) -> Decided:
    """What a request does not name stays; null takes it away."""
    _check_is_writable(state, subject)
    config = dict(state.configs.get(subject, {}))
    for name, stored in _REQUEST_FIELDS.items():
        if name in request:
            found = _config_value(stored, request[name])
            config[stored] = found
    config = {name: config[name] for name in records.CONFIG_FIELDS if config.get(name) is not None}
    answer = {"compatibility" if name == "compatibilityLevel" else name: found for name, found in config.items()}
    return Decided(answer, (records.config_record(subject, config),))


def _config_value(name: str, raw: Any) -> Any:
    if raw is None:
        return None
    if name == "compatibilityLevel":
        level = str(raw).upper()
        if level not in LEVELS:
            raise errors.invalid_compatibility()
        return level
    if name == "compatibilityPolicy":
        policy = str(raw).upper()
        if policy not in POLICIES:
            raise errors.invalid_policy(policy)
        return policy
    if name.endswith("Metadata"):
        return read_metadata(raw)
    if name.endswith("RuleSet"):
        return read_rules(raw)
    if name in _FLAGS:
        if not isinstance(raw, bool):
            raise errors.RegistryError(422, 422, f"{name} is true or false, not {raw!r}")
        return raw
    return str(raw)


def decide_config_deletion(state: State, subject: str | None) -> Decided:
    config = state.configs.get(subject)
    if config is None and subject is not None:
        raise errors.subject_not_found(subject)
    _check_is_writable(state, subject)
    return Decided(config_answer(state, config or {}), (records.config_record(subject, None),))


def config_answer(state: State, config: dict[str, Any]) -> dict[str, Any]:
    """With the level that holds if it has none of its own."""
    return {"compatibilityLevel": state.default_compatibility, **config}


def decide_mode(state: State, subject: str | None, mode: str | None, *, force: bool) -> Decided:
    if mode is not None and mode not in MODES:
        raise errors.invalid_mode()
    written: list[Record] = []
    if mode == IMPORT and state.mode_in_scope(subject) != IMPORT and not force:
        if state.has_subjects(subject, deleted=False):
            raise errors.not_permitted("Cannot import since found existing subjects")
        for name in state.subjects_meant(subject, deleted=True):
            for version in state.versions(name, deleted=True):
                if state.referrers(name, version.version, deleted=True):
                    raise errors.reference_exists(name, version.version)
                written.append(records.schema_record(name, version.version, None))
        written.append(records.clear_subject_record(subject))
    return Decided({"mode": mode}, (*written, records.mode_record(subject, mode)))


def decide_mode_deletion(state: State, subject: str | None, *, recursive: bool) -> Decided:
    mode = state.modes.get(subject)
    if mode is None and subject is not None and not recursive:
        raise errors.subject_not_found(subject)
    names = [subject]
    if recursive and (subject is None or is_context(subject)):
        context = context_of(subject)
        names += [each for each in state.modes if each is not None and each != subject and context_of(each) == context]
    return Decided(
        {"mode": mode or (state.default_mode if subject is None else None)},
        tuple(records.mode_record(name, None) for name in names),
    )
