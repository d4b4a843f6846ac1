"""What happens to a record whose handler has failed: again at once, later by a retry topic, or to the dead letters.

    attempts on the spot      back-off, doubled each time, while the record stays where it is
    retry topics, in order    `orders.retry.5s`, `orders.retry.1m`, `orders.retry.10m`; one attempt each
    dead letters              `orders.dlq`

With `keep_order` a record never leaves its partition before its dead letter: it waits out the same delays in memory,
and later records of its key behind it. Pure: names and decisions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([1-9]\d*)(ms|s|m|h|d)")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_STEPS_MAX = 16


class SettingError(ValueError):
    """A setting of an application is wrong. The message says which one, why and what to do."""


def parse_duration_ms(text: str) -> int:
    """`500ms`, `5s`, `1m`, `2h`, `1d`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise SettingError(f"{text!r} is not a time: write a whole number and ms, s, m, h or d, such as 5s or 10m")
    return int(match[1]) * _UNITS_MS[match[2]]


@dataclass(frozen=True)
class Retries:
    """`steps` are the delays of the retry topics, and part of their names by `retry_topic`. `never_for` are exceptions
    that no further attempt would mend: such a record goes to the dead letters at once. Without `dead_letters` the
    application stops at a record that fails for the last time, and no later one of its partition is committed."""

    on_the_spot: int = 2
    back_off_ms: int = 100
    back_off_max_ms: int = 5000
    steps: tuple[str, ...] = ("5s", "1m", "10m")
    keep_order: bool = False
    dead_letters: bool = True
    never_for: tuple[type[BaseException], ...] = ()
    retry_topic: str = "{topic}.retry.{delay}"
    dead_letter_topic: str = "{topic}.dlq"

    def __post_init__(self) -> None:
        if self.on_the_spot < 0 or self.back_off_ms < 0 or self.back_off_max_ms < 0:
            raise SettingError("on_the_spot, back_off_ms and back_off_max_ms of Retries are 0 or more")
        if len(self.steps) > _STEPS_MAX:
            raise SettingError(f"Retries has {len(self.steps)} steps: at most {_STEPS_MAX} are taken")
        if len(set(self.steps)) != len(self.steps):
            raise SettingError(f"the steps of Retries name a topic each, and two are the same: {', '.join(self.steps)}")
        for step in self.steps:
            parse_duration_ms(step)
        names = [*self.retry_topics("t"), self.dead_letter_name("t"), "t"]
        if len(set(names)) != len(names):
            raise SettingError(
                "retry_topic needs {topic} and {delay} in it, dead_letter_topic {topic}, so that all names differ"
            )

    def retry_topics(self, topic: str) -> list[str]:
        return [] if self.keep_order else [_name(self.retry_topic, topic, step) for step in self.steps]

    def dead_letter_name(self, topic: str) -> str:
        return _name(self.dead_letter_topic, topic, "")


def _name(template: str, topic: str, delay: str) -> str:
    name = template.replace("{topic}", topic).replace("{delay}", delay)
    if _TOPIC_NAME.fullmatch(name) is None or name in (".", ".."):
        raise SettingError(f"{name!r} cannot be the name of a topic: letters, digits, '.', '_' and '-', at most 249")
    return name


class Reject(Exception):  # noqa: N818 - read where it is raised: `raise Reject("no such customer")`
    """Raised by a handler: no further attempt would mend this record."""


class Again(NamedTuple):
    after_ms: int


class Later(NamedTuple):
    """`level` counts the retry topics from 1 on."""

    level: int
    topic: str
    delay_ms: int


class Bury(NamedTuple):
    topic: str


class Stop(NamedTuple):
    pass


Decision = Again | Later | Bury | Stop


def decide_next(
    retries: Retries, topic: str, *, level: int, tries: int, error: BaseException, is_hopeless: bool = False
) -> Decision:
    """After `tries` attempts where the record is now: in the topic itself (level 0), or in a retry topic. A hopeless
    one would fail in the same way for ever."""
    if not is_hopeless and not isinstance(error, (Reject, *retries.never_for)):
        spot = retries.on_the_spot if level == 0 else 0
        if tries <= spot:
            return Again(min(retries.back_off_ms << min(tries - 1, 30), retries.back_off_max_ms))
        if retries.keep_order and tries - spot <= len(retries.steps):
            return Again(parse_duration_ms(retries.steps[tries - spot - 1]))
        if not retries.keep_order and level < len(retries.steps):
            delay_ms = parse_duration_ms(retries.steps[level])
            return Later(level + 1, retries.retry_topics(topic)[level], delay_ms)
    return Bury(retries.dead_letter_name(topic)) if retries.dead_letters else Stop()
