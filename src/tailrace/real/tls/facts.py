"""What certificates and revocation lists say of themselves: whose, under which names, and until when.

Read from their bytes, since the library that could tell takes sixty milliseconds to load, and every broker with TLS
asks at its start. ValueError if they cannot be read.
"""

from __future__ import annotations

import re
from base64 import b64decode
from datetime import UTC, datetime
from ipaddress import ip_address

from tailrace.model.security import CertificateFacts, Ending
from tailrace.real.tls.der import OBJECT_ID, SEQUENCE, Value, expect, object_id, read_all, read_one
from tailrace.real.tls.subjects import certificate_fields, name_text

_VALIDITY, _SUBJECT = 3, 4
_INTEGER, _OCTETS, _UTC_TIME, _GENERAL_TIME, _EXTENSIONS = 0x02, 0x04, 0x17, 0x18, 0xA3
_ALTERNATIVE_NAMES = "2.5.29.17"
_NAME_KINDS = {0x81: "email", 0x82: "DNS", 0x86: "URI"}
_ADDRESS = 0x87
# Two digits of a year from here on are of the last century (RFC 5280).
_CENTURY_TURN = "50"


def blocks_of(pem: str, kind: str) -> list[bytes]:
    """The DER of all blocks of a kind, such as CERTIFICATE, in a text of PEM."""
    found = re.findall(rf"-----BEGIN {kind}-----(.*?)-----END {kind}-----", pem, re.DOTALL)
    return [b64decode("".join(body.split())) for body in found]


def certificate_facts(certificate: bytes) -> CertificateFacts:
    fields = certificate_fields(certificate)
    begins, ends = read_all(expect(fields[_VALIDITY], SEQUENCE).content)[:2]
    return CertificateFacts(name_text(fields[_SUBJECT]), _names(fields[_SUBJECT + 1 :]), _time(begins), _time(ends))


def list_ending(revoked: bytes) -> Ending | None:
    """When the next list should be there; None if it does not say."""
    fields = read_all(read_one(read_one(revoked, SEQUENCE).content, SEQUENCE).content)
    if fields and fields[0].tag == _INTEGER:
        fields = fields[1:]
    if len(fields) <= _VALIDITY:  # Algorithm, issuer, this update, next update.
        return None
    issuer, ends = fields[1], fields[3]
    if ends.tag not in (_UTC_TIME, _GENERAL_TIME):
        return None
    return Ending(f"the revocation list of {name_text(issuer)}", _time(ends))


def _names(fields: list[Value]) -> frozenset[str]:
    extensions = next((each for each in fields if each.tag == _EXTENSIONS), None)
    if extensions is None:
        return frozenset()
    for extension in read_all(read_one(extensions.content, SEQUENCE).content):
        parts = read_all(expect(extension, SEQUENCE).content)
        if object_id(expect(parts[0], OBJECT_ID).content) == _ALTERNATIVE_NAMES:
            names = read_one(expect(parts[-1], _OCTETS).content, SEQUENCE).content
            return frozenset(map(_general_name, read_all(names)))
    return frozenset()


def _general_name(name: Value) -> str:
    if name.tag in _NAME_KINDS:
        return f"{_NAME_KINDS[name.tag]}:{name.content.decode('utf-8', 'replace')}"
    if name.tag == _ADDRESS and len(name.content) in (4, 16):
        return f"IP:{ip_address(name.content)}"
    return f"{name.tag}:{name.content.hex()}"


def _time(value: Value) -> int:
    text = value.content.decode("ascii", "replace")
    if value.tag == _UTC_TIME:
        text = ("19" if text[:2] >= _CENTURY_TURN else "20") + text
    # Without strptime, which takes ten milliseconds to load.
    if re.fullmatch(r"\d{14}Z", text) is None:
        raise ValueError("a time that is not of the form YYYYMMDDHHMMSSZ")
    month, day, hour, minute, second = (int(text[at : at + 2]) for at in range(4, 14, 2))
    return int(datetime(int(text[:4]), month, day, hour, minute, second, tzinfo=UTC).timestamp() * 1000)
