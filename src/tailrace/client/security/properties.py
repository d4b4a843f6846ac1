"""The text of a .properties file, as Kafka's tools take it by --command-config, into names and values.

Java's rules: `#` and `!` begin a comment, `=`, `:` or blanks part a name from its value, a backslash at the end of a
line goes on in the next one, and elsewhere it escapes what follows.
"""

from __future__ import annotations

import re

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
# A name runs up to the first =, : or blank that is not escaped.
_LINE = r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)"


def parse_properties(text: str) -> dict[str, str]:
    """If a name comes twice, its last value counts."""
    values = {}
    for line in _logical_lines(text):
        found = re.fullmatch(_LINE, line, re.DOTALL)
        assert found is not None, "every line fits: the last group takes what is left"
        values[_unescape(found[1])] = _unescape(found[2])
    return values


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    is_continued = False
    for raw in text.splitlines():
        line = raw.lstrip()
        if not is_continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        part = line[:-1] if backslashes % 2 else line
        if is_continued:
            lines[-1] += part
        else:
            lines.append(part)
        is_continued = backslashes % 2 == 1
    return lines


def _unescape(word: str) -> str:
    return re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))",
        lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPES.get(found[2], found[2]),
        word,
        flags=re.DOTALL,
    )
