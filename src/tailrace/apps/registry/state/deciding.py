"""What a request asks for: the records to write, and the answer once they are written. Looks at the state and changes
nothing.

Registering is decided in three steps, since parsing and comparing take time that the loop does not have:

    prepare_registration   what the new schema is, and which earlier ones it is compared with
    judge                  pure and slow: parses, normalizes, compares
    decide_registration    is it there already, may it be, under which version and id
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tailrace.apps.registry import errors
from tailrace.apps.registry.state import records
from tailrace.apps.registry.state.documents import (
    confluent_version,
    guid_of,
    merge_metadata,
    merge_rules,
    set_confluent_version,
)
from tailrace.apps.registry.state.names import DEFAULT_CONTEXT, context_of, context_prefix, qualify
from tailrace.apps.registry.state.parsing import Parsed, Source, new_source, source_of
from tailrace.apps.registry.state.policy import Policy, policy_of, told
from tailrace.apps.registry.state.records import Record, Reference, SchemaValue
from tailrace.apps.registry.state.store import IMPORT, LATEST, READONLY, READONLY_OVERRIDE, READWRITE, State, Version
from tailrace.schemas import Incompatibility, ParsedSchema

_NO_ID = -1
_NO_VERSION = 0


class NewSchema(NamedTuple):
    """A schema as somebody has sent it."""

    schema_type: str | None
    text: str
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rules: dict[str, Any] | None = None
    id: int = _NO_ID
    version: int = _NO_VERSION  # LATEST: the one after the last, and noted in its metadata.


class Question(NamedTuple):
    """What `judge` needs."""

    new: Source
    earlier: tuple[tuple[int, Source], ...]  # The newest first.
    policy: Policy
    is_normalized: bool


class Judgement(NamedTuple):
    schema: ParsedSchema
    text: str
    incompatibilities: tuple[Incompatibility, ...]
    # Of the earlier versions those that are the same schema, written otherwise.
    same: tuple[int, ...]


class Prepared(NamedTuple):
    new: NewSchema
    question: Question


class Registered(NamedTuple):
    version: Version
    records: tuple[Record, ...] = ()  # None if it was there already.


def judge(question: Question, parsed: Parsed) -> Judgement:
    new = parsed.get(question.new)
    text = new.normalized() if question.is_normalized else new.text
    earlier = [(number, parsed.get(source)) for number, source in question.earlier]
    found = question.policy.check(new, earlier)
    same = tuple(number for number, old in earlier if _is_same(new, old))
    return Judgement(new, text, tuple(found), same)


def _is_same(new: ParsedSchema, old: ParsedSchema) -> bool:
    return new.schema_type == old.schema_type and new.canonical_key == old.canonical_key


# --- registering


def check_may_register(state: State, subject: str, schema_id: int) -> None:
    mode = state.mode_in_scope(subject)
    where = f"Subject {subject} in context {context_prefix(context_of(subject))}"
    if mode in (READONLY, READONLY_OVERRIDE):
        raise errors.not_permitted(f"{where} is in read-only mode")
    if schema_id >= 0 and mode != IMPORT:
        raise errors.not_permitted(f"{where} is not in import mode")
    if schema_id < 0 and mode != READWRITE:
        raise errors.not_permitted(f"{where} is not in read-write mode")


def prepare_registration(state: State, subject: str, new: NewSchema, *, normalize: bool) -> Prepared:
    versions = state.versions(subject)
    config = state.config_in_scope(subject)
    new = new._replace(references=tuple(_pin(state, subject, each) for each in new.references))
    if state.mode_in_scope(subject) != IMPORT:
        new = _populate(state, subject, new, versions[-1] if versions else None, config)
    elif not new.text.strip():
        raise errors.invalid_schema("Empty schema")
    return Prepared(new, _question(state, subject, new, versions, normalize=normalize))


def _pin(state: State, subject: str, reference: Reference) -> Reference:
    """A reference to the latest version is one to that which is the latest now."""
    if reference.version != LATEST:
        return reference
    found = state.find(qualify(subject, reference.subject), LATEST)
    return reference if found is None else reference._replace(version=found.version)


def prepare_comparison(
    state: State, subject: str, new: NewSchema, versions: Sequence[Version], *, normalize: bool
) -> Question:
    if not new.text.strip():
        raise errors.invalid_schema("Empty schema")
    return _question(state, subject, new, versions, normalize=normalize)


def _question(state: State, subject: str, new: NewSchema, versions: Sequence[Version], *, normalize: bool) -> Question:
    config = state.config_in_scope(subject)
    earlier = _group(config, new.metadata, versions)
    source = new_source(state, subject, new.schema_type or records.AVRO, new.text, new.references)
    newest_first = tuple((each.version, source_of(state, each)) for each in reversed(earlier))
    is_normalized = normalize or config.get("normalize") is True
    return Question(source, newest_first, policy_of(config, new.metadata, versions), is_normalized)


def _group(config: dict[str, Any], metadata: dict[str, Any] | None, versions: Sequence[Version]) -> list[Version]:
    """Only schemas of one compatibility group are compared, where there are groups."""
    name = config.get("compatibilityGroup")
    if not name:
        return list(versions)

    def group_of(document: dict[str, Any] | None) -> str | None:
        found: str | None = (document or {}).get("properties", {}).get(name)
        return found

    return [each for each in versions if group_of(each.value.metadata) == group_of(metadata)]


def _populate(
    state: State, subject: str, new: NewSchema, previous: Version | None, config: dict[str, Any]
) -> NewSchema:
    """What was left out is as in the version before; the settings of the subject add their own."""
    if not new.text.strip():
        if previous is None:
            raise errors.invalid_schema("Empty schema")
        value = previous.value
        new = new._replace(text=value.text, schema_type=value.schema_type, references=value.references)
    old = None if previous is None else previous.value
    metadata = new.metadata if new.metadata is not None or old is None else old.metadata
    rules = new.rules if new.rules is not None or old is None else old.rules
    metadata = merge_metadata(merge_metadata(config.get("defaultMetadata"), metadata), config.get("overrideMetadata"))
    rules = merge_rules(merge_rules(config.get("defaultRuleSet"), rules), config.get("overrideRuleSet"))
    if new.version != _NO_VERSION or confluent_version(metadata) is not None:
        metadata = set_confluent_version(metadata, _next_version(state, subject))
    return new._replace(metadata=metadata, rules=rules)


def _next_version(state: State, subject: str) -> int:
    last = state.find(subject, LATEST, deleted=True)
    return 1 if last is None else last.version + 1


def find_registered(
    state: State, subject: str, new: NewSchema, judgement: Judgement, *, deleted: bool
) -> Version | None:
    """The version of a subject that is this schema."""
    guid = guid_of(judgement.text, [each.document for each in new.references], new.metadata, new.rules)
    schema_id = state.id_of(context_of(subject), guid)
    versions = state.versions(subject, deleted=deleted)
    for version in reversed(versions):
        if version.id == schema_id and version.guid == guid:
            return version
    return next(
        (
            version
            for version in reversed(versions)
            if version.version in judgement.same
            and (version.value.metadata, version.value.rules) == (new.metadata, new.rules)
        ),
        None,
    )


def decide_registration(
    state: State, subject: str, prepared: Prepared, judgement: Judgement, *, force: bool, now_ms: int
) -> Registered:
    new, context = prepared.new, context_of(subject)
    check_may_register(state, subject, new.id)
    if new.version <= 0:
        there = find_registered(state, subject, new, judgement, deleted=False)
        if there is not None and new.id in (_NO_ID, there.id):
            return Registered(there)
    is_import = state.mode_in_scope(subject) == IMPORT
    if judgement.incompatibilities and not is_import and not force:
        raise errors.incompatible(subject, told(judgement.incompatibilities, prepared.question.policy))
    guid = guid_of(judgement.text, [each.document for each in new.references], new.metadata, new.rules)
    known_id = state.id_of(context, guid)
    schema_id = new.id if new.id >= 0 else known_id if known_id is not None else state.max_id(context) + 1
    _check_id(state, context, schema_id, guid)
    number = _next_version(state, subject)
    if new.version > 0 and new.version != number:
        if not is_import:
            raise errors.invalid_schema("Version is not one more than previous version")
        number = new.version
    value = SchemaValue(
        schema_id, judgement.schema.schema_type, judgement.text, new.references, new.metadata, new.rules
    )
    written: list[Record] = []
    if context != DEFAULT_CONTEXT and context not in state.contexts:
        written.append(records.context_record(context))
    for old in state.versions(subject, deleted=True):
        # The soft-deleted same schema is replaced by this one, unless somebody refers to it by its number.
        is_replaced = old.is_deleted and old.id == schema_id and old.version < number
        if is_replaced and not state.referrers(subject, old.version, deleted=True):
            written.append(records.schema_record(subject, old.version, None))
    written.append(records.schema_record(subject, number, value))
    return Registered(Version(subject, number, guid, value, now_ms), tuple(written))


def _check_id(state: State, context: str, schema_id: int, guid: str) -> None:
    known = state.version_by_id(context, schema_id)
    if known is not None and known.guid != guid:
        raise errors.not_permitted(
            f"Overwrite new schema with id {schema_id} in context {context_prefix(context)} is not permitted."
        )
