"""What a rule is: a metric, how its series become one number, and from which number on somebody is told.

Each rule says the same to us (`engine`) and to Prometheus (`prometheus`). A file is TOML: `[[rule]]` tables, which add
to the shipped rules or change those of the same name, and `[send]`.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

RUNBOOK = "docs/runbook.md"


class RulesError(Exception):
    """A file of rules is wrong. The message says where, why and what to do."""


class Take(Enum):
    """What is taken of each series."""

    VALUE = "value"
    INCREASE = "increase"  # By how much a counter has grown in the window.
    SECONDS_UNTIL = "seconds_until"  # A moment in seconds since 1970: how far away it is.
    HOURS_UNTIL_ZERO = "hours_until_zero"  # If it goes on to fall as it did in the window.
    SKEW = "skew"  # A clock in seconds since 1970: how far ahead of ours it is.


class Combine(Enum):
    """How the series of a group become one."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    SPREAD = "spread"  # The largest less the smallest.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    name: str
    summary: str  # One sentence; {value} and labels such as {group} are filled in.
    metric: str
    severity: str = "warning"
    labels: Mapping[str, str] = field(default_factory=dict)  # Which series: those with these labels.
    take: Take = Take.VALUE
    divide_by: str = ""  # Another metric with the same labels.
    combine: Combine = Combine.SUM
    by: tuple[str, ...] = ()  # One alert for each of these labels' values; `instance` is the node.
    window_seconds: float = 300.0
    above: float | None = None  # Exactly one of the two.
    below: float | None = None
    for_seconds: float = 0.0
    enabled: bool = True
    runbook: str = ""  # Where it is told what to do; where nothing is said, an entry of the shipped one.

    def __post_init__(self) -> None:
        if not self.runbook:
            object.__setattr__(self, "runbook", f"{RUNBOOK}#{self.name.lower()}")

    def holds(self, value: float) -> bool:
        return value > self.above if self.above is not None else value < (self.below or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    webhooks: tuple[str, ...] = ()
    slack: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    repeat_seconds: float = 4 * 3600.0  # An alert that still holds is told again.
    resolve_seconds: float = 15.0  # So long it must not hold before it counts as over.
    timeout_seconds: float = 10.0
    interval_seconds: float = 10.0  # Between readings.
    runbook: str = RUNBOOK  # Where docs/runbook.md is to be read by whoever is told.


@dataclass(frozen=True, slots=True)
class RuleFile:
    rules: tuple[Rule, ...]
    sending: Sending


def read_rules(path: str | None, shipped: Sequence[Rule]) -> RuleFile:
    """The shipped ones, changed by the file. Raises RulesError."""
    if path is None:
        return RuleFile(tuple(shipped), Sending())
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise RulesError(f"cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise RulesError(f"{path} is not TOML: {error}") from None
    return parse_rules(document, shipped, path)


def parse_rules(document: Mapping[str, Any], shipped: Sequence[Rule], where: str) -> RuleFile:
    if unknown := document.keys() - {"rule", "send"}:
        raise RulesError(f"{where}: {min(unknown)} is unknown: a file has [[rule]] tables and [send]")
    rules = {rule.name: rule for rule in shipped}
    for number, table in enumerate(document.get("rule", []), 1):
        rule = _parse_rule(table, rules, f"{where}: rule {number}")
        rules[rule.name] = rule
    sending = _parse_table(Sending, document.get("send", {}), f"{where}: [send]")
    _check_receivers(sending, f"{where}: [send]")
    base = str(sending.get("runbook", RUNBOOK))
    return RuleFile(tuple(_linked(rule, base) for rule in rules.values() if rule.enabled), Sending(**sending))


def _linked(rule: Rule, base: str) -> Rule:
    path, mark, entry = rule.runbook.partition("#")
    return replace(rule, runbook=f"{base}{mark}{entry}") if path == RUNBOOK else rule


def _check_receivers(sending: Mapping[str, Any], where: str) -> None:
    """Messages do not repeat addresses, which may hold secrets."""
    for key in ("webhooks", "slack"):
        for number, address in enumerate(sending.get(key, ()), 1):
            if not address.startswith(("http://", "https://")):
                raise RulesError(f"{where}: {key}: address {number} does not begin with http:// or https://")
    for number, command in enumerate(sending.get("commands", ()), 1):
        try:
            is_named = bool(shlex.split(command))
        except ValueError as error:
            raise RulesError(f"{where}: commands: number {number} is no command line: {error}") from None
        if not is_named:
            raise RulesError(f"{where}: commands: number {number} is empty")


def _parse_rule(table: Mapping[str, Any], known: Mapping[str, Rule], where: str) -> Rule:
    name = table.get("name")
    if not isinstance(name, str) or not name.isidentifier():
        raise RulesError(f"{where}: `name` is missing, or not letters, digits and _")
    values = _parse_table(Rule, table, f"{where} ({name})")
    if "above" in values or "below" in values:
        values = {"above": None, "below": None, **values}
    base = known.get(name)
    try:
        rule = Rule(**values) if base is None else replace(base, **values)
    except TypeError:
        raise RulesError(f"{where} ({name}): a new rule has at least summary, metric, and above or below") from None
    if (rule.above is None) == (rule.below is None):
        raise RulesError(f"{where} ({name}): give `above` or `below`, and not both")
    return rule


def _parse_table(table_type: type[Any], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    kinds = {each.name: str(each.type) for each in fields(table_type)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in kinds:
            raise RulesError(f"{where}: {key} is unknown; known are {', '.join(sorted(kinds))}")
        values[key] = _parse_value(kinds[key], value, f"{where}: {key}")
    return values


def _parse_value(kind: str, value: Any, where: str) -> Any:
    if kind in ("Take", "Combine"):
        choices = [each.value for each in (Take if kind == "Take" else Combine)]
        if value not in choices:
            raise RulesError(f"{where} is one of {', '.join(choices)}")
        return Take(value) if kind == "Take" else Combine(value)
    if kind.startswith("tuple"):
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise RulesError(f"{where} is a list of texts")
        return tuple(value)
    if kind.startswith("Mapping"):
        if not isinstance(value, dict):
            raise RulesError(f"{where} is a table of labels")
        return {str(key): str(each) for key, each in value.items()}
    expected = bool if kind == "bool" else str if kind == "str" else (int, float)
    if not isinstance(value, expected) or (kind.startswith("float") and isinstance(value, bool)):
        raise RulesError(f"{where} is not what it should be: {value!r}")
    return float(value) if kind.startswith("float") else value
