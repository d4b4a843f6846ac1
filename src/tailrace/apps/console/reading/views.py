"""How a visitor sees the records of a topic: opened by their schemas first, then masked. Filters see no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.apps.console.reading.masks import Masks
from tailrace.apps.opening import Name, Opened, RecordOpener
from tailrace.wire.payload import Record


class Notes(NamedTuple):
    """What was done to a record before it is shown."""

    key_schema: Name | None = None
    value_schema: Name | None = None
    is_masked: bool = False
    problems: tuple[str, ...] = ()


NO_NOTES = Notes()


class View:
    def __init__(self, *, schemas: RecordOpener | None = None, masks: Masks | None = None) -> None:
        self._schemas = schemas
        self._masks = masks

    @property
    def is_plain(self) -> bool:
        """Records are shown as they are."""
        return self._schemas is None and not self._masks

    async def prepare(self, records: Sequence[Record]) -> None:
        if self._schemas is not None:
            await self._schemas.prepare(records)

    def see(self, record: Record) -> tuple[Record, Notes]:
        """Of a record that was prepared."""
        key, value = self._open("key", record), self._open("value", record)
        seen = record
        if key is not None and key.text is not None:
            seen = seen._replace(key=key.text)
        if value is not None and value.text is not None:
            seen = seen._replace(value=value.text)
        opened = seen
        if self._masks:
            seen = self._masks.hide(seen)
        # Why bytes could not be opened may tell what is in them.
        problems = tuple(
            f"{part} by schema {each.schema}: {'it cannot be opened' if self._masks else each.problem}"
            for part, each in (("key", key), ("value", value))
            if each is not None and each.problem
        )
        notes = Notes(_schema(key), _schema(value), seen != opened, problems)
        return seen, NO_NOTES if notes == NO_NOTES else notes

    def _open(self, part: str, record: Record) -> Opened | None:
        return None if self._schemas is None else self._schemas.open(part, record)


def _schema(opened: Opened | None) -> Name | None:
    return None if opened is None or opened.text is None else opened.schema


PLAIN = View()
