"""What a subject asks of a new version of its schema, and how a refusal is told.

Beside the level of compatibility these are a policy, STRICT or LENIENT, and fields that metadata reserves: with
`validateFields` a name in the property `confluent:reserved` may not be used, and stays reserved in later versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tailrace.apps.registry.errors import invalid_schema
from tailrace.apps.registry.state.documents import Document
from tailrace.apps.registry.state.store import Version
from tailrace.schemas import JSON, Incompatibility, ParsedSchema, check

STRICT, LENIENT = "STRICT", "LENIENT"
POLICIES = (STRICT, LENIENT)

_RESERVED = "confluent:reserved"
# Confluent keeps such names for itself.
_RESTRICTED_PREFIX = "$$"


class Policy(NamedTuple):
    level: str
    is_lenient: bool = False
    validates_fields: bool = False
    reserved: tuple[str, ...] = ()
    # What the version before had reserved and the new one has not; and which version that is.
    given_up: tuple[str, ...] = ()
    previous: int = 0

    def check(self, new: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]]) -> list[Incompatibility]:
        """All that keeps `new` from following `earlier`, the newest first. Raises RegistryError for names that no
        schema may have."""
        found = list(self._check_fields(new)) if self.validates_fields else []
        return found + check(self.level, new, earlier, is_lenient=self.is_lenient)

    def _check_fields(self, new: ParsedSchema) -> Iterator[Incompatibility]:
        for name in new.top_fields:
            if new.schema_type == JSON and name.startswith(_RESTRICTED_PREFIX):
                raise invalid_schema(f"Invalid schema, details: Field names cannot start with $$ prefix: {name}")
        for name in self.given_up:
            text = (
                f"The new schema has reserved field {name} removed from its metadata which is present in the old "
                "schema's metadata."
            )
            remedy = f"keep {name} in the property {_RESERVED}"
            yield Incompatibility("RESERVED_FIELD_REMOVED", "", self.previous, text, remedy)
        for name in self.reserved:
            if name in new.top_fields:
                text = f"The new schema has field that conflicts with the reserved field {name}."
                remedy = f"give the field {name} another name"
                yield Incompatibility("FIELD_CONFLICTS_WITH_RESERVED_FIELD", "", self.previous, text, remedy)


NO_POLICY = Policy("NONE")


def policy_of(config: dict[str, Any], metadata: Document | None, versions: Sequence[Version]) -> Policy:
    """`config` holds for the subject, `metadata` comes with the new version, and `versions` are those before it."""
    policy = Policy(config["compatibilityLevel"], config.get("compatibilityPolicy") == LENIENT)
    if config.get("validateFields") is not True:
        return policy
    reserved = _reserved(metadata)
    if not versions:
        return policy._replace(validates_fields=True, reserved=reserved)
    last = versions[-1]
    given_up = tuple(each for each in _reserved(last.value.metadata) if each not in reserved)
    return policy._replace(validates_fields=True, reserved=reserved, given_up=given_up, previous=last.version)


def _reserved(metadata: Document | None) -> tuple[str, ...]:
    names = (metadata or {}).get("properties", {}).get(_RESERVED, "").split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def told(found: Sequence[Incompatibility], policy: Policy) -> str:
    return "[" + ", ".join(messages(found, policy)) + "]"


def messages(found: Sequence[Incompatibility], policy: Policy) -> list[str]:
    """Each in Confluent's own words, and after it where it is, against which version, and what would pass."""
    lines = []
    for each in found:
        lines += [each.message, _particulars(each)]
    validates = str(policy.validates_fields).lower()
    return [*lines, f"{{validateFields: '{validates}', compatibility: '{policy.level}'}}"] if lines else []


def _particulars(found: Incompatibility) -> str:
    place = f", path: '{found.path}'" if found.path else ""
    return f"{{rule: '{found.rule}'{place}, oldSchemaVersion: {found.version}, remedy: '{found.remedy}'}}"
