"""The one line of JAAS that `sasl.jaas.config` holds: a login module, a flag, and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a \\"secret\\"";

Java reads it with a tokenizer: words, quoted texts with backslashes, `=` and `;`. A refusal never quotes the line,
since passwords stand in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tailrace.model.errors import KafkaError
from tailrace.model.settings import invalid

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
# A quoted text, or one of = and ;, or a word.
_WORD = r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s"'=;]+))"""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class JaasEntry(NamedTuple):
    module: str
    options: Mapping[str, str]


def parse_jaas(text: str) -> JaasEntry:
    """Raises KafkaError INVALID_CONFIG."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS:
        raise _refusal("it must start with a login module and the word required")
    if tokens[-1] != ";":
        raise _refusal("it must end with a semicolon")
    words = tokens[2:-1]
    if len(words) % 3 or any(words[place] != "=" for place in range(1, len(words), 3)):
        raise _refusal('after the word required there must be options as name="value", without commas')
    return JaasEntry(tokens[0], dict(zip(words[::3], words[2::3], strict=True)))


def _tokens(text: str) -> list[str]:
    tokens = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        found = re.compile(_WORD, re.DOTALL).match(text, position)
        if found is None:
            raise _refusal("a quote is opened and never closed")
        quoted = found[1] if found[1] is not None else found[2]
        tokens.append(found[3] or found[4] if quoted is None else _unescape(quoted))
        position = found.end()
    return tokens


def _unescape(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), quoted, flags=re.DOTALL)


def _refusal(reason: str) -> KafkaError:
    return invalid(
        "sasl.jaas.config",
        "(hidden)",
        f"{reason}. Such as: org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="secret";',
    )
