"""The settings of an app as a frozen dataclass: each field is a `setting`, and `parse_table` reads it from text.

Every refusal is a KafkaError INVALID_CONFIG that names the setting, the value, and what would be taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, TypeVar, cast

from tailrace.model.settings import invalid

T = TypeVar("T")


def setting(
    name: str,
    default: Any,
    doc: str,
    *,
    least: int | None = None,
    most: int | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    row = {"name": name, "doc": doc, "least": least, "most": most, "choices": choices}
    return field(default=default, metadata=row)


def parse_table(table: type[T], given: Mapping[str, str], owner: str) -> T:
    """`owner` is who has such settings: "a registry"."""
    rows = {row.metadata["name"]: row for row in fields(cast(Any, table))}
    values: dict[str, Any] = {}
    for name, text in given.items():
        row = rows.get(name)
        if row is None:
            raise invalid(name, text, f"{owner} has no such setting; it has: {', '.join(sorted(rows))}")
        values[row.name] = _parse(name, text.strip(), row.default, cast(Mapping[str, Any], row.metadata))
    return table(**values)


def _parse(name: str, text: str, default: Any, row: Mapping[str, Any]) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise invalid(name, text, "It must be true or false")
        return text.lower() == "true"
    if isinstance(default, int):
        try:
            number = int(text)
        except ValueError:
            raise invalid(name, text, "Not a number") from None
        if row["least"] is not None and number < row["least"]:
            raise invalid(name, text, f"It must be at least {row['least']}")
        if row["most"] is not None and number > row["most"]:
            raise invalid(name, text, f"It must be at most {row['most']}")
        return number
    if row["choices"]:
        found = next((choice for choice in row["choices"] if choice.upper() == text.upper()), None)
        if found is None:
            raise invalid(name, text, f"It must be one of: {', '.join(row['choices'])}")
        return found
    return text
