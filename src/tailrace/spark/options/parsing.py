"""Texts of options into values; each function raises an OptionError that names the option.

`options` have lower-case names everywhere; an option's name is given as people write it, for the messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.options.errors import OptionError

Options = Mapping[str, str]

_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(-?\d+)\s*([a-z]*)")
_INT64_MAX = 2**63 - 1


def parse_boolean(options: Options, name: str, *, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"option {name} is {text!r}: expected true or false")
    return word == "true"


def parse_integer(options: Options, name: str, *, least: int = 0) -> int | None:
    """None if it is not given."""
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise OptionError(f"option {name} is {text!r}: expected a whole number") from None
    if not least <= number <= _INT64_MAX:
        raise OptionError(f"option {name} is {number}: expected {least} or more")
    return number


def parse_duration_ms(options: Options, name: str, *, default_ms: int) -> int:
    """Spark's own notation: a number, in milliseconds unless a unit follows."""
    text = options.get(name.lower())
    if text is None:
        return default_ms
    matched = _DURATION.fullmatch(text.strip().lower())
    unit = _UNITS_MS.get(matched[2] or "ms") if matched else None
    if matched is None or unit is None or int(matched[1]) < 0:
        raise OptionError(f"option {name} is {text!r}: expected a number with a unit ({', '.join(_UNITS_MS)})")
    return int(int(matched[1]) * unit)


def parse_partitions(text: str, name: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [0, 1]}`"""
    example = 'expected {"topicA": [0, 1], "topicB": [2]}'
    found = []
    for topic, indexes in _parse_topics(text, name, example).items():
        if not isinstance(indexes, list) or not all(_is_index(index) for index in indexes):
            raise OptionError(f"option {name} has {json.dumps(indexes)} for topic {topic}: {example}")
        found += [TopicPartition(topic, PartitionIndex(index)) for index in indexes]
    if not found:
        raise OptionError(f"option {name} names no partition: {example}")
    return tuple(sorted(set(found)))


def parse_partition_numbers(text: str, name: str, *, least: int) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23, "1": -1}}`: offsets or times by partition."""
    example = 'expected {"topicA": {"0": 23, "1": 42}, "topicB": {"0": 7}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _parse_topics(text, name, example).items():
        if not isinstance(numbers, dict):
            raise OptionError(f"option {name} has {json.dumps(numbers)} for topic {topic}: {example}")
        for index, number in numbers.items():
            if not (index.isascii() and index.isdigit()):
                raise OptionError(f"option {name} has partition {index!r} of topic {topic}: {example}")
            if type(number) is not int or not least <= number <= _INT64_MAX:
                raise OptionError(
                    f"option {name} has {json.dumps(number)} for {topic}-{index}: "
                    f"expected a whole number, {least} or more"
                )
            found[TopicPartition(topic, PartitionIndex(int(index)))] = number
    return found


def _parse_topics(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name} is not JSON ({error}): {example}, found {text!r}") from None
    if not isinstance(topics, dict):
        raise OptionError(f"option {name}: {example}, found {text!r}")
    return topics


def _is_index(value: object) -> bool:
    return type(value) is int and value >= 0
