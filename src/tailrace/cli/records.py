"""Records as text: what `consume` writes and `produce` reads.

A template is kcat's: %v (or %s) value, %k key, %h headers, %t topic, %p partition, %o offset, %T timestamp in ms, %V
(or %S) and %K the sizes of value and key, %% a percent sign; \\n, \\t, \\r, \\0, \\\\ and \\xNN are escapes.

A JSON line is an object with topic, partition, offset, timestamp, key, value and headers. A key or value that is not
UTF-8 stands under `key_base64` or `value_base64` instead, so nothing is lost; `produce --input json` reads the same.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tailrace.wire.records import Record

Encode = Callable[[bytes], bytes]
Headers = list[tuple[str, bytes | None]]

ENCODINGS: dict[str, Encode] = {"utf-8": bytes, "hex": binascii.hexlify, "base64": base64.b64encode}
_NULL_SIZE = b"-1"
_TOKEN = re.compile(r"%(.)|\\(x[0-9A-Fa-f]{2}|.)|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class Shape(NamedTuple):
    """How keys, values and nulls are shown."""

    key: Encode = bytes
    value: Encode = bytes
    null: bytes = b""

    def key_of(self, record: Record) -> bytes:
        return self.null if record.key is None else self.key(record.key)

    def value_of(self, record: Record) -> bytes:
        return self.null if record.value is None else self.value(record.value)


Field = Callable[[str, int, Record], bytes]


def unescape(text: str) -> bytes:
    """Raises ValueError for an escape that does not exist."""
    return b"".join(_escape(found.group(2)) if found.group(2) else found.group().encode() for found in _tokens(text))


def compile_template(template: str, shape: Shape) -> Callable[[str, int, Record], bytes]:
    """A function of (topic, partition, record). Raises ValueError with the part of the template that is wrong."""
    fields: list[Field] = []
    for found in _tokens(template):
        token, escape, text = found.groups()
        if token is not None:
            fields.append(_field(token, shape))
        else:
            fields.append(_constant(_escape(escape) if escape else text.encode()))
    return lambda topic, partition, record: b"".join([field(topic, partition, record) for field in fields])


def _tokens(text: str) -> list[re.Match[str]]:
    found = list(_TOKEN.finditer(text))
    if sum(len(part.group()) for part in found) != len(text):
        raise ValueError(f"{text!r} ends in the midst of {text[-1]!r}: write it twice to mean itself")
    return found


def _escape(name: str) -> bytes:
    if name.startswith("x") and len(name) == 3:
        return bytes.fromhex(name[1:])
    if name not in _ESCAPES:
        raise ValueError(f"\\{name} is no escape: use \\n, \\t, \\r, \\0, \\\\ or \\xNN")
    return _ESCAPES[name]


def _constant(text: bytes) -> Field:
    return lambda _topic, _partition, _record: text


def _field(token: str, shape: Shape) -> Field:
    match token:
        case "v" | "s":
            return lambda _topic, _partition, record: shape.value_of(record)
        case "k":
            return lambda _topic, _partition, record: shape.key_of(record)
        case "V" | "S":
            return lambda _topic, _partition, record: _size(record.value)
        case "K":
            return lambda _topic, _partition, record: _size(record.key)
        case "h":
            return lambda _topic, _partition, record: _headers_text(record, shape)
        case "t":
            return lambda topic, _partition, _record: topic.encode()
        case "p":
            return lambda _topic, partition, _record: b"%d" % partition
        case "o":
            return lambda _topic, _partition, record: b"%d" % record.offset
        case "T":
            return lambda _topic, _partition, record: b"%d" % record.timestamp
        case "%":
            return _constant(b"%")
    raise ValueError(f"%{token} is no field: use %v %k %h %t %p %o %T %V %K or %%")


def _size(content: bytes | None) -> bytes:
    return _NULL_SIZE if content is None else b"%d" % len(content)


def _headers_text(record: Record, shape: Shape) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (shape.null if content is None else shape.value(content))
        for name, content in record.headers
    )


# --- JSON lines


def record_json(topic: str, partition: int, record: Record, shape: Shape) -> str:
    line: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    line |= _json_content("key", record.key, shape.key) | _json_content("value", record.value, shape.value)
    if record.headers:
        line["headers"] = [
            {"name": name} | _json_content("value", content, shape.value) for name, content in record.headers
        ]
    return json.dumps(line)


def _json_content(name: str, content: bytes | None, encode: Encode) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: encode(content).decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode("ascii")}


class ParsedRecord(NamedTuple):
    """What a line says of a record to produce."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None


def parse_record_json(line: bytes) -> ParsedRecord:
    """Raises ValueError with what is wrong. Everything but the value may be left out. Topic, partition and offset are
    not taken from the line: they tell where the record was, not where it goes."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or ("value" not in fields and "value_base64" not in fields):
        raise ValueError('not an object with a "value" or "value_base64"')
    headers: Headers = []
    for header in fields.get("headers") or ():
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise ValueError('a header is not an object with a "name" and a "value"')
        headers.append((header["name"], _json_bytes(header, "value")))
    return ParsedRecord(
        _json_bytes(fields, "key"),
        _json_bytes(fields, "value"),
        headers,
        _json_number(fields, "timestamp"),
    )


def _json_bytes(fields: dict[str, Any], name: str) -> bytes | None:
    packed = fields.get(f"{name}_base64")
    if packed is not None:
        return decode_text("base64", packed.encode()) if isinstance(packed, str) else _not_text(f"{name}_base64")
    content = fields.get(name)
    if content is None:
        return None
    if isinstance(content, str):
        return content.encode("utf-8", "surrogateescape")
    return _not_text(name)


def _not_text(name: str) -> bytes:
    raise ValueError(f'"{name}" is neither text nor null')


def _json_number(fields: dict[str, Any], name: str) -> int | None:
    number = fields.get(name)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise ValueError(f'"{name}" is not a whole number')
    return number


def decode_text(encoding: str, text: bytes) -> bytes:
    """The bytes that a line stands for. Raises ValueError."""
    if encoding == "hex":
        return bytes.fromhex(text.decode("ascii"))
    if encoding == "base64":
        return base64.b64decode(text, validate=True)
    return text
