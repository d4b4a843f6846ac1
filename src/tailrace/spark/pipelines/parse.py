"""From a file to a declaration: the dataclasses themselves are the schema.

A key is a field, its type says what a value must be, a field with a default may be left out. Every error names the
file, the line and the key; an unknown key also the nearest one that is known. Where a field may be one of several
dataclasses, the first field of each tells them apart: a sink with `table` is a TableSink.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tailrace.spark.pipelines.declaration import DeclarationError, Pipeline
from tailrace.spark.pipelines.document import Document, Place, read_document

if TYPE_CHECKING:
    from tailrace.spark.audit import Audit
    from tailrace.spark.pipelines.backfill import Backfill

    Job: TypeAlias = Pipeline | Backfill | Audit

# Keys at the top of a file that its section need not say again.
INHERITED = ("name", "bootstrap", "checkpoint", "kafka", "spark")
# Fields that only Python can give.
_NOT_IN_FILES = frozenset({"folder", "function"})


def load(path: str | Path) -> Job:
    """What the file declares. Raises PipelineFileError."""
    return parse(read_document(path))


def parse(document: Document) -> Job:
    present = [section for section in ("sink", "audit", "backfill") if section in document.value]
    if len(present) != 1:
        found = " and ".join(present) or "none of them"
        raise document.error((), f"a file declares one thing, by a section sink, audit or backfill; here is {found}")
    parser = _Parser(document)
    if present == ["sink"]:
        folder = str(Path(document.path).resolve().parent)
        return typing.cast(Pipeline, parser.dataclass((), document.value, Pipeline, folder=folder))
    return typing.cast("Job", parser.section(present[0], _job_class(present[0])))


def _job_class(section: str) -> Any:
    if section == "audit":
        from tailrace.spark.audit import Audit

        return Audit
    from tailrace.spark.pipelines.backfill import Backfill

    return Backfill


class _Parser:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._inherited: dict[str, Any] = {}

    def section(self, name: str, job: type) -> Any:
        """One section of the file is the whole job; beside it stand the keys that it inherits."""
        top = self._document.value
        self._check_keys((), top, [*INHERITED, name])
        settings = self.value(("kafka",), top.get("kafka", {}), Mapping[str, str])
        if "bootstrap" in top:
            settings = {"bootstrap.servers": self.value(("bootstrap",), top["bootstrap"], str)} | settings
        self._inherited = {key: top[key] for key in INHERITED if key in top} | {"kafka": settings}
        return self.value((name,), top[name], job)

    def value(self, place: Place, value: Any, kind: Any) -> Any:
        """The value as the type `kind`, which is one of those that the match below has."""
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return self._one_of(place, value, [option for option in arguments if option is not types.NoneType])
        if origin is Literal:
            return self._literal(place, value, arguments)
        if origin is tuple:
            values = value if isinstance(value, list) else [value]
            return tuple(self.value((*place, index), item, arguments[0]) for index, item in enumerate(values))
        if dataclasses.is_dataclass(kind):
            return self.dataclass(place, self._table(place, value), kind)
        if typing.get_origin(kind) is not None:
            return {
                key: self.value((*place, key), item, arguments[1]) for key, item in self._table(place, value).items()
            }
        return self._plain(place, value, kind)

    def dataclass(self, place: Place, table: Mapping[str, Any], kind: Any, **given: str) -> Any:
        fields = {field.name: field for field in dataclasses.fields(kind) if field.name not in _NOT_IN_FILES}
        hints = typing.get_type_hints(kind)
        table = {key: value for key, value in self._inherited.items() if key in fields} | dict(table)
        self._check_keys(place, table, list(fields))
        for name, field in fields.items():
            has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            if name not in table and not has_default:
                raise self._document.error(place, f"the key {name} is missing")
        values = {name: self.value((*place, name), value, hints[name]) for name, value in table.items()}
        try:
            return kind(**values, **given)
        except DeclarationError as error:
            raise self._document.error((*place, error.key) if error.key else place, str(error)) from None

    def _check_keys(self, place: Place, table: Mapping[str, Any], known: list[str]) -> None:
        for key in table:
            if key not in known:
                near = get_close_matches(key, known, n=1, cutoff=0.5)
                advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
                raise self._document.error((*place, key), f"no such key: {advice}")

    def _one_of(self, place: Place, value: Any, options: list[Any]) -> Any:
        if len(options) == 1:
            return self.value(place, value, options[0])
        table = self._table(place, value)
        firsts = {dataclasses.fields(option)[0].name: option for option in options}
        found = [first for first in firsts if first in table]
        if len(found) != 1:
            raise self._document.error(place, f"exactly one of the keys {', '.join(firsts)} says what this is")
        return self.dataclass(place, table, firsts[found[0]])

    def _literal(self, place: Place, value: Any, words: tuple[Any, ...]) -> Any:
        if value is None and "null" in words:  # YAML's own word for nothing.
            return "null"
        if value in words:
            return value
        near = get_close_matches(str(value), [str(word) for word in words], n=1)
        advice = f"; did you mean {near[0]}?" if near else ""
        raise self._document.error(place, f"{value!r} is none of {', '.join(map(str, words))}{advice}")

    def _table(self, place: Place, value: Any) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        raise self._document.error(place, f"{_described(value)} where a table of keys and values belongs")

    def _plain(self, place: Place, value: Any, kind: Any) -> Any:
        # Settings of Kafka and Spark are texts, and people write true and 5 there.
        if kind is str and len(place) > 1 and place[-2] in _SETTINGS and isinstance(value, bool | int | float):
            return str(value).lower() if isinstance(value, bool) else str(value)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
        raise self._document.error(place, f"{_described(value)} where {_NAMES[kind]} belongs")


_SETTINGS = ("kafka", "spark", "options", "catalog")
_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _described(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "nothing" if value is None else repr(value)
