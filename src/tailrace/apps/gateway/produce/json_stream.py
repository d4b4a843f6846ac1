"""JSON objects one after the other, as they arrive: text in pieces in, documents out.

Each piece is looked at once or twice, however it is cut: what is not whole yet is searched for its end by a scanner
that remembers where it stood. What is no JSON (400), or an object that is too long (413), is the `failure` of the
stream: what came before it counts, and nothing behind it is read.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any, NoReturn

from tailrace.apps.gateway.errors import GatewayError, bad_request, too_large

_SPACE = re.compile(r"[ \t\n\r]*")
_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_json(data: bytes) -> Any:
    """A whole document. Raises GatewayError 400."""
    try:
        return _DECODER.decode(data.decode())
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None


class JsonStream:
    def __init__(self, object_max_bytes: int) -> None:
        self._max = object_max_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._end = _EndOfObject()
        self.failure: GatewayError | None = None

    def feed(self, data: bytes, *, is_last: bool = False) -> list[dict[str, Any]]:
        """The objects that end in this piece."""
        found: list[dict[str, Any]] = []
        try:
            self._read(data, found, is_last=is_last)
        except GatewayError as error:
            self.failure = error
        return found

    def _read(self, data: bytes, found: list[dict[str, Any]], *, is_last: bool) -> None:
        try:
            self._text += self._utf8.decode(data, is_last)
        except UnicodeDecodeError as error:
            raise bad_request(f"the body is not UTF-8: {error.reason}") from None
        position = self._skip_space(0)
        while position < len(self._text):
            if self._text[position] != "{":
                raise bad_request(f"an object is expected, not {self._text[position : position + 20]!r}")
            step = self._take(position)
            if step is None:
                break
            document, end = step
            found.append(document)
            position = self._skip_space(end)
        self._text = self._text[position:]
        if len(self._text) > self._max:
            raise too_large(f"a record has more than {self._max} characters: see record.max.bytes")
        if is_last and self._text:
            raise bad_request("the body ends amid an object")

    def _skip_space(self, position: int) -> int:
        found = _SPACE.match(self._text, position)
        assert found is not None, "nothing is a match too"
        return found.end()

    def _take(self, position: int) -> tuple[dict[str, Any], int] | None:
        """None if the object is not whole yet."""
        if self._end.is_searching and not self._end.find(self._text):
            return None
        try:
            document, end = _DECODER.raw_decode(self._text, position)
        except RecursionError:
            raise bad_request("an object is nested too deeply") from None
        except ValueError as error:
            if self._end.is_searching or self._end.begin(self._text, position):
                raise bad_request(f"a record is not JSON: {error}") from None
            return None
        if end - position > self._max:
            raise too_large(f"a record has more than {self._max} characters: see record.max.bytes")
        self._end = _EndOfObject()
        return document, end


class _EndOfObject:
    """Where an object ends, of which more and more is there: it begins at 0, once it has been found to be cut."""

    def __init__(self) -> None:
        self.is_searching = False
        self._position = 0
        self._depth = 0
        self._is_inside = False

    def begin(self, text: str, start: int) -> bool:
        """Whether the object that begins at `start` ends in this text."""
        self.is_searching = True
        return self.find(text[start:])

    def find(self, text: str) -> bool:
        position = self._position
        while True:
            match = (_INSIDE if self._is_inside else _OUTSIDE).search(text, position)
            if match is None:
                self._position = max(position, len(text))  # What is escaped may be still to come.
                return False
            sign = match.group()
            position = match.end()
            if sign == "\\":
                position += 1  # Whatever is escaped, it ends nothing.
            elif sign == '"':
                self._is_inside = not self._is_inside
            else:
                self._depth += 1 if sign in "{[" else -1
                if self._depth == 0:
                    self._position = position
                    return True
