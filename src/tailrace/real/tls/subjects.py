"""The subject of a certificate as Java writes it, for principals have to read the same on Kafka's brokers and on ours.

That is X500Principal.getName(): RFC 2253, the last part first, with the nine keywords of that RFC alone; other
attributes, and values that are no text, as the number of the attribute and `#` with the bytes in hexadecimal. Escaped
are `,=+<>#;"\\` wherever they stand, a NUL, and blanks at either end. Reads DER; ValueError if it is none.
"""

from __future__ import annotations

from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE, _SET, _OBJECT_ID, _VERSION = 0x30, 0x31, 0x06, 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString: Java reads the bytes of
# all of them as UTF-8.
_TEXTS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"


class _Value(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """`certificate` is DER, and was verified."""
    outer = _read_all(certificate)[:1]
    to_be_signed = _read_all(_expect(outer[0], _SEQUENCE).content)[:1] if outer else []
    if not to_be_signed:
        raise ValueError("it is empty")
    fields = _read_all(_expect(to_be_signed[0], _SEQUENCE).content)
    if fields and fields[0].tag == _VERSION:
        fields = fields[1:]
    if len(fields) < 5:  # Serial number, algorithm, issuer, validity, subject.
        raise ValueError("it has no subject")
    return _name_text(_expect(fields[4], _SEQUENCE).content)


def _name_text(name: bytes) -> str:
    return ",".join(
        "+".join(_attribute_text(pair) for pair in _read_all(_expect(part, _SET).content))
        for part in reversed(_read_all(name))
    )


def _attribute_text(pair: _Value) -> str:
    fields = _read_all(_expect(pair, _SEQUENCE).content)
    if len(fields) != 2:
        raise ValueError("a part of its subject is not a name with a value")
    number, value = _object_id(_expect(fields[0], _OBJECT_ID).content), fields[1]
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escape(value.content.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    escaped = "".join(
        f"\\{character}" if character in _ESCAPED else character.replace("\0", "\\00") for character in text
    )
    inner = escaped.lstrip(_BLANKS)
    leading = escaped[: len(escaped) - len(inner)]
    core = inner.rstrip(_BLANKS)
    trailing = inner[len(core) :]
    return "".join(f"\\{blank}" for blank in leading) + core + "".join(f"\\{blank}" for blank in trailing)


def _object_id(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise ValueError("the number of an attribute of its subject is cut short")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _read_all(data: bytes) -> list[_Value]:
    values = []
    position = 0
    while position < len(data):
        tag, start, size = _read_head(data, position)
        end = start + size
        if end > len(data):
            raise ValueError("it is cut short")
        values.append(_Value(tag, data[start:end], data[position:end]))
        position = end
    return values


def _read_head(data: bytes, position: int) -> tuple[int, int, int]:
    """The tag, where the content begins, and its size."""
    if position + 2 > len(data):
        raise ValueError("it is cut short")
    tag, size = data[position], data[position + 1]
    start = position + 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4 or start + count > len(data):
            raise ValueError("a size in it cannot be read")
        size = int.from_bytes(data[start : start + count], "big")
        start += count
    return tag, start, size


def _expect(value: _Value, tag: int) -> _Value:
    if value.tag != tag:
        raise ValueError(f"it has a value of type {value.tag}, where {tag} belongs")
    return value
