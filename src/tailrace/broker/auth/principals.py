"""From the subject of a certificate to the name of a principal: ssl.principal.mapping.rules (KIP-371). Pure.

    RULE:pattern/replacement/   $1 in the replacement is the first group of the pattern, which must fit the whole
    RULE:pattern/replacement/L  and then in small letters; U: in capitals
    DEFAULT                     the subject as it is

The first rule that fits counts. Whoever fits none is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model.settings import invalid

_RULE = r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|\Z)"


class Rule(NamedTuple):
    pattern: str | None  # None for DEFAULT.
    replacement: str = ""
    case: str = ""

    def name_of(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        found = re.fullmatch(self.pattern, subject)
        if found is None:
            return None
        name = re.sub(r"\$([0-9]+)", lambda group: _group(found, int(group[1])), self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Raises KafkaError INVALID_CONFIG."""
    if text == "DEFAULT":
        return (Rule(None),)  # As it mostly is: a pattern that is compiled takes 2 ms of a start.
    rules = []
    position = 0
    while position < len(text):
        found = re.compile(_RULE).match(text, position)
        if found is None:
            reason = "Write DEFAULT or RULE:pattern/replacement/ with L or U behind it if you like, parted by commas"
            raise invalid("ssl.principal.mapping.rules", text, reason)
        rules.append(Rule(None) if found[1] else _checked(text, Rule(found[2], found[3], found[4])))
        position = found.end()
    return tuple(rules) or (Rule(None),)


def map_subject(rules: Sequence[Rule], subject: str) -> str | None:
    """None for whoever fits none."""
    return next((name for rule in rules if (name := rule.name_of(subject))), None)


def _checked(text: str, rule: Rule) -> Rule:
    try:
        re.compile(rule.pattern or "")
    except re.error as error:
        raise invalid("ssl.principal.mapping.rules", text, f"The pattern {rule.pattern!r} is none: {error}") from None
    return rule


def _group(found: re.Match[str], number: int) -> str:
    """As Kafka has it, a group that the pattern does not have stays as it is written."""
    return (found[number] or "") if number <= len(found.groups()) else f"${number}"
