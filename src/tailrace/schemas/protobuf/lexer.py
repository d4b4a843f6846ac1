"""The words of a .proto file, with the line of each."""

import re
from dataclasses import dataclass

from tailrace.schemas.parsed import InvalidSchema

_WORDS = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
  | (?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fF]?)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<mark>[{}()\[\]<>;,=.:/+-])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


@dataclass(frozen=True, slots=True)
class Word:
    # number, name, string, mark or end
    kind: str
    text: str
    line: int


def words(text: str) -> list[Word]:
    found = []
    line, position = 1, 0
    while position < len(text):
        match = _WORDS.match(text, position)
        if match is None:
            raise InvalidSchema(f"line {line}: {text[position : position + 20]!r} is not Protobuf")
        kind, piece = str(match.lastgroup), match.group()
        if kind != "space":
            found.append(Word(kind, piece, line))
        line += piece.count("\n")
        position = match.end()
    found.append(Word("end", "the end of the file", line))
    return found


def unquoted(literal: str) -> bytes:
    """The bytes of a string as it stands in the file."""

    def one(match: re.Match[bytes]) -> bytes:
        octal, two, four, eight, plain = match.groups()
        if octal is not None:
            return bytes([int(octal, 8) & 255])
        if two is not None:
            return bytes([int(two, 16)])
        if four is not None or eight is not None:
            return chr(int(four or eight, 16)).encode()
        return _PLAIN.get(plain, plain)

    return _ESCAPE.sub(one, literal[1:-1].encode())
