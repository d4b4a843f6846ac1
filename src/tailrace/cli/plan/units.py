"""Quantities as people write them: 1M/s, 86.4B/day, 1KB, 1KiB, 7d, 10Gbit/s; and how they are told again.

Letters may be large or small, and spaces, commas and underscores stand where they like. KB is 1,000 bytes, KiB is
1,024. A word that cannot be understood is an argparse error that shows what could be.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping

SECOND, MINUTE, HOUR, DAY = 1.0, 60.0, 3_600.0, 86_400.0

_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d*)?(?:e\d+)?|\.\d+)(?P<unit>[a-z]*)(?:/(?P<per>[a-z]+))?")
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12, "p": 1e15}
_SCALE_WORDS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_DECIMAL, _BINARY = "kmgtpe", 1024.0
_MESSAGES = ("messages", "message", "msgs", "msg", "records", "record", "events", "event")
_SPANS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hr", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * DAY),
    **dict.fromkeys(("y", "year", "years"), 365 * DAY),
}
_BYTES = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1.0),
    **{f"{letter}{end}": 1000.0 ** (power + 1) for power, letter in enumerate(_DECIMAL) for end in ("", "b")},
    **{f"{letter}ib": _BINARY ** (power + 1) for power, letter in enumerate(_DECIMAL)},
}
_BITS = {
    f"{letter}{end}": 1000.0**power / 8
    for power, letter in enumerate(("", *_DECIMAL))
    for end in ("bit", "bits", "bps", "bitps")
}


def parse_rate(text: str) -> float:
    """Messages a second. Without a unit of time it is a second."""
    number, unit, per = _split(text, "a rate", "1M/s, 20k/s, 86.4B/day")
    for word in _MESSAGES:
        unit = unit.removesuffix(word)
    scale = _scale({**_SCALES, **_SCALE_WORDS}, unit, text, "a rate", "1M/s, 20k/s, 86.4B/day")
    return number * scale / _scale({"": SECOND, **_SPANS}, per, text, "a rate", "1M/s, 20k/s, 86.4B/day")


def parse_size(text: str) -> float:
    """Bytes."""
    examples = "100B, 1KB (1,000 bytes), 1KiB (1,024), 2MB"
    number, unit, per = _split(text, "a size", examples)
    return number * _scale({} if per else _BYTES, unit, text, "a size", examples)


def parse_duration(text: str) -> float:
    """Seconds."""
    examples = "90s, 15m, 36h, 7d, 2w"
    number, unit, per = _split(text, "a length of time", examples)
    return number * _scale({} if per else _SPANS, unit, text, "a length of time", examples)


def parse_bandwidth(text: str) -> float:
    """Bytes a second, also from bits."""
    examples = "10Gbit/s, 1.25GB/s"
    number, unit, per = _split(text, "a speed", examples)
    # Without its own letter a number of bytes would be one of anything.
    return (
        number
        * _scale({**_BITS, **{u: s for u, s in _BYTES.items() if "b" in u}}, unit, text, "a speed", examples)
        / (_scale({"": SECOND, "s": SECOND, "sec": SECOND, "second": SECOND}, per, text, "a speed", examples))
    )


def size_text(size_bytes: float) -> str:
    for scale, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if size_bytes >= scale:
            return f"{_short(size_bytes / scale)} {unit}"
    return f"{_short(size_bytes)} B"


def rate_text(per_second: float) -> str:
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= scale:
            return f"{_short(per_second / scale)} {unit} msg/s"
    return f"{_short(per_second)} msg/s"


def duration_text(seconds: float) -> str:
    for scale, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= scale:
            return f"{_short(seconds / scale)} {unit}"
    return f"{_short(seconds)} s"


def _split(text: str, kind: str, examples: str) -> tuple[float, str, str]:
    """The number, its unit and the unit of time behind the slash, in small letters."""
    found = _QUANTITY.fullmatch(re.sub(r"[\s,_]", "", text).lower())
    if found is None:
        raise _unknown(text, kind, examples)
    number = float(found["number"])
    if not 0 < number < 1e30:
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind} above 0")
    return number, found["unit"], found["per"] or ""


def _scale(units: Mapping[str, float], unit: str, text: str, kind: str, examples: str) -> float:
    if unit not in units:
        raise _unknown(text, kind, examples)
    return units[unit]


def _unknown(text: str, kind: str, examples: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} is not {kind}: write {examples}")


def _short(value: float) -> str:
    """Three digits that count, or all of those before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
