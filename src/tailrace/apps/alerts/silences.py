"""What nobody wants to hear of for a while: a JSON file, which people change by `tailrace alerts silence`.

A silence names a rule or `*`, and labels that an alert must have; it ends by itself. A silenced alert is watched all
the same: if it still holds when the silence ends it is told then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.apps.alerts.engine import Alert


class SilencesError(Exception):
    """The file cannot be read or written. The message says why."""


@dataclass(frozen=True, slots=True)
class Silence:
    rule: str
    labels: dict[str, str]
    until: float
    comment: str

    def covers(self, alert: Alert, now: float) -> bool:
        fits = self.rule in ("*", alert.rule.name) and self.labels.items() <= dict(alert.labels).items()
        return fits and now < self.until


def read_silences(path: str) -> list[Silence]:
    try:
        with open(path, encoding="utf-8") as file:
            return [_parse(each) for each in json.load(file)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SilencesError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SilencesError(f"{path} is no list of silences; remove it to begin anew") from None


def write_silences(path: str, silences: Sequence[Silence]) -> None:
    try:
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump([asdict(each) for each in silences], file, indent=2)
        os.replace(f"{path}.tmp", path)
    except OSError as error:
        raise SilencesError(f"cannot write {path}: {error.strerror}") from None


def _parse(facts: dict[str, Any]) -> Silence:
    labels = {str(key): str(value) for key, value in facts["labels"].items()}
    return Silence(str(facts["rule"]), labels, float(facts["until"]), str(facts["comment"]))
