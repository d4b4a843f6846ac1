"""From texts to parsed schemas, with what they refer to.

A `Source` is a text with the sources that it refers to: plain data, gathered from the state on the loop and parsed
wherever there is time. `Parsed` keeps what was parsed last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.apps.registry.errors import invalid_schema
from tailrace.apps.registry.state.names import qualify
from tailrace.apps.registry.state.records import Reference
from tailrace.apps.registry.state.store import State, Version
from tailrace.schemas import InvalidSchema, Limits, ParsedSchema, parse
from tailrace.schemas.limits import DEFAULT_LIMITS

TYPES = ("JSON", "PROTOBUF", "AVRO")


class Source(NamedTuple):
    schema_type: str
    text: str
    references: tuple[tuple[str, Source], ...] = ()


def source_of(state: State, version: Version) -> Source:
    """Of a stored version: what it refers to may have been soft-deleted since."""
    value = version.value
    found = _resolve(state, version.subject, value.references, is_new=False, depth=0)
    return Source(value.schema_type, value.text, found)


def new_source(state: State, subject: str, schema_type: str, text: str, references: Sequence[Reference]) -> Source:
    """Raises RegistryError if a reference leads nowhere."""
    if schema_type not in TYPES:
        raise invalid_schema(f"Invalid schema type {schema_type}")
    return Source(schema_type, text, _resolve(state, subject, references, is_new=True, depth=0))


def _resolve(
    state: State, parent: str, references: Sequence[Reference], *, is_new: bool, depth: int
) -> tuple[tuple[str, Source], ...]:
    if depth > state.references_depth_max:
        raise invalid_schema(
            f"references from {parent!r} on go deeper than {state.references_depth_max}, or in a ring: refer to fewer, "
            "or raise schema.references.depth.max"
        )
    found = []
    for reference in references:
        subject = qualify(parent, reference.subject)
        version = state.find(subject, reference.version, deleted=not is_new)
        if version is None:
            why = _why_not(state, subject, reference.version)
            raise invalid_schema(
                f'Invalid schema, details: No schema reference found for subject "{reference.subject}" and version '
                f"{reference.version}: {why}"
            )
        value = version.value
        inner = _resolve(state, version.subject, value.references, is_new=False, depth=depth + 1)
        found.append((reference.name, Source(value.schema_type, value.text, inner)))
    return tuple(found)


def _why_not(state: State, subject: str, number: int) -> str:
    if state.find(subject, number, deleted=True) is not None:
        return "it is deleted; register it again, or refer to another version"
    return "register it first" if not state.has_subjects(subject, deleted=True) else "the subject has no such version"


class Parsed:
    """The last schemas that were parsed. Any thread may ask."""

    def __init__(self, size: int, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._size = size
        self._schemas: OrderedDict[Source, ParsedSchema] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, source: Source) -> ParsedSchema:
        """Raises RegistryError for a text that is no schema."""
        with self._lock:
            found = self._schemas.get(source)
            if found is not None:
                self._schemas.move_to_end(source)
                return found
        references = {name: self.get(each) for name, each in source.references}
        try:
            schema = parse(source.schema_type, source.text, references, self._limits)
        except InvalidSchema as error:
            raise invalid_schema(f"Invalid schema of type {source.schema_type}, details: {error}") from None
        with self._lock:
            self._schemas[source] = schema
            while len(self._schemas) > self._size:
                self._schemas.popitem(last=False)
        return schema
