"""A TOML or YAML file as plain values, with the line of every key.

Both parsers give values without places, or places without a plain way to them; here they are joined. `${NAME}` in a
string stands for an environment variable, so that no password has to be in the file; `$${` is a plain `${`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# From the root of the file to a value: keys of tables, and indexes of lists.
Place = tuple[str | int, ...]

FILE_BYTES_MAX = 1 << 20  # A pipeline is short: what is larger was named by mistake.


class PipelineFileError(ValueError):
    """The file says something that cannot be; the message begins with its name and line."""


@dataclass(frozen=True)
class Document:
    path: str
    value: dict[str, Any]
    lines: Mapping[Place, int] = field(default_factory=dict)

    def error(self, place: Place, message: str) -> PipelineFileError:
        """The line is that of the place, or of the nearest one around it."""
        key = ".".join(map(str, place))
        while place and place not in self.lines:
            place = place[:-1]
        where = f"{self.path}:{self.lines.get(place, 1)}"
        return PipelineFileError(f"{where}: {key}: {message}" if key else f"{where}: {message}")


def read_document(path: str | Path, environment: Mapping[str, str] = os.environ) -> Document:
    name = str(path)
    text = _read(Path(path))
    if name.endswith((".yaml", ".yml")):
        value, lines = _parse_yaml(name, text)
    elif name.endswith(".toml"):
        value, lines = _parse_toml(name, text)
    else:
        raise PipelineFileError(f"{name}: a pipeline is a file that ends in .toml, .yaml or .yml")
    document = Document(name, value, lines)
    return Document(name, _filled(document, (), value, environment), lines)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise PipelineFileError(f"{path}: larger than {FILE_BYTES_MAX >> 20} MB, so it is no pipeline")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineFileError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PipelineFileError(f"{path}: not a text in UTF-8 ({error.reason} at byte {error.start})") from None


_VARIABLE = re.compile(r"\$(\$\{|\{(\w+)\})")


def _filled(document: Document, place: Place, value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(document, (*place, key), item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(document, (*place, index), item, environment) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replacement(found: re.Match[str]) -> str:
        name = found[2]
        if name is None:
            return "${"
        if name not in environment:
            raise document.error(
                place, f"the environment has no {name}: set it, or write $${{{name}}} for the text itself"
            )
        return environment[name]

    return _VARIABLE.sub(replacement, value)


def _parse_yaml(name: str, text: str) -> tuple[dict[str, Any], dict[Place, int]]:
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise PipelineFileError(f"{name}:{line}: not YAML: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(value, dict):
        raise PipelineFileError(f"{name}:1: a pipeline is a table of keys and values")
    lines: dict[Place, int] = {}
    _locate_yaml(name, node, (), lines)
    return value, lines


def _locate_yaml(name: str, node: Any, place: Place, lines: dict[Place, int]) -> None:
    if node.id == "mapping":
        for key, item in node.value:
            inner = (*place, key.value)
            line = key.start_mark.line + 1
            if not key.tag.endswith(":str"):
                raise PipelineFileError(f"{name}:{line}: the key {key.value} is no text: put it in quotes")
            if inner in lines:
                raise PipelineFileError(f"{name}:{line}: {key.value} is there twice, first in line {lines[inner]}")
            lines[inner] = line
            _locate_yaml(name, item, inner, lines)
    elif node.id == "sequence":
        for index, item in enumerate(node.value):
            lines[(*place, index)] = item.start_mark.line + 1
            _locate_yaml(name, item, (*place, index), lines)


def _parse_toml(name: str, text: str) -> tuple[dict[str, Any], dict[Place, int]]:
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error))
        problem, line = (found[1], found[2]) if found else (str(error), None)
        raise PipelineFileError(f"{name}:{line or text.count(chr(10)) + 1}: not TOML: {problem}") from None
    return value, _locate_toml(text)


# What a valid TOML text is made of, as far as keys and lines go. Longer quotes stand before shorter ones.
_TOML_TOKEN = re.compile(
    r'(?P<string>"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<comment>#[^\n]*)|(?P<newline>\n)|(?P<mark>[\[\]{}=,.])|(?P<word>[^\s\[\]{}=,.#\"']+)",
    re.DOTALL,
)


def _locate_toml(text: str) -> dict[Place, int]:
    """Headers and the keys at the beginnings of lines. Keys of an inline table get the line of the table."""
    lines: dict[Place, int] = {}
    table: Place = ()
    arrays: dict[Place, int] = {}
    for number, tokens in _toml_lines(text):
        if tokens[0] == "[":
            is_array = tokens[:2] == ["[", "["]
            table = tuple(_toml_key(tokens[2 if is_array else 1 :]))
            if is_array:
                arrays[table] = arrays.get(table, -1) + 1
            table = _through_arrays(table, arrays)
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], number)
            continue
        place = table
        for part in _toml_key(tokens):
            place = (*place, part)
            lines.setdefault(place, number)
    return lines


def _toml_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """The tokens of each statement with the number of its first line: a value may go on over several."""
    number, depth = 1, 0
    first, tokens = 1, list[str]()
    for found in _TOML_TOKEN.finditer(text):
        token = found[0]
        if found.lastgroup == "newline":
            if tokens and depth == 0:
                yield first, tokens
                tokens = []
        elif found.lastgroup != "comment":
            first = first if tokens else number
            tokens.append(token)
            depth += (token in ("[", "{")) - (token in ("]", "}"))
        number += token.count("\n")
    if tokens:
        yield first, tokens


def _toml_key(tokens: list[str]) -> Iterator[str]:
    for part in tokens:
        if part in ("=", "]"):
            return
        if part != ".":
            yield tomllib.loads(f"key = {part}")["key"] if part[0] in "\"'" else part


def _through_arrays(table: Place, arrays: Mapping[Place, int]) -> Place:
    place: Place = ()
    plain: Place = ()
    for part in table:
        plain, place = (*plain, part), (*place, part)
        if plain in arrays:
            place = (*place, arrays[plain])
    return place
