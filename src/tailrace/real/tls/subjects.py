"""Names in certificates as Java writes them, for principals have to read the same on Kafka's brokers and on ours.

That is X500Principal.getName(): RFC 2253, the last part first, with the nine keywords of that RFC alone; other
attributes, and values that are no text, as the number of the attribute and `#` with the bytes in hexadecimal. Escaped
are `,=+<>#;"\\` wherever they stand, a NUL, and blanks at either end. Reads DER; ValueError if it is none.
"""

from __future__ import annotations

from tailrace.real.tls.der import OBJECT_ID, SEQUENCE, SET, Value, expect, object_id, read_all, read_one

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
_VERSION = 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString: Java reads the bytes of
# all of them as UTF-8.
_TEXTS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"
_SUBJECT = 4


def subject_of(certificate: bytes) -> str:
    """`certificate` is DER, and was verified."""
    return name_text(certificate_fields(certificate)[_SUBJECT])


def certificate_fields(certificate: bytes) -> list[Value]:
    """Serial number, algorithm, issuer, validity, subject, key, and what may follow."""
    fields = read_all(read_one(read_one(certificate, SEQUENCE).content, SEQUENCE).content)
    if fields and fields[0].tag == _VERSION:
        fields = fields[1:]
    if len(fields) <= _SUBJECT:
        raise ValueError("it has no subject")
    return fields


def name_text(name: Value) -> str:
    return ",".join(
        "+".join(_attribute_text(pair) for pair in read_all(expect(part, SET).content))
        for part in reversed(read_all(expect(name, SEQUENCE).content))
    )


def _attribute_text(pair: Value) -> str:
    fields = read_all(expect(pair, SEQUENCE).content)
    if len(fields) != 2:
        raise ValueError("a part of its subject is not a name with a value")
    number, value = object_id(expect(fields[0], OBJECT_ID).content), fields[1]
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
