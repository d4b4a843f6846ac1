"""Points in time on a command line, and on the screen."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from typing import NamedTuple

_AGO = re.compile(r"-?(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Moment(NamedTuple):
    """A point in time: `is_ago` tells that the milliseconds count back from now."""

    milliseconds: int
    is_ago: bool

    def timestamp_ms(self, now_ms: int) -> int:
        return max(0, now_ms - self.milliseconds) if self.is_ago else self.milliseconds


def parse_time(word: str) -> Moment:
    """A time without a zone is UTC."""
    ago = _AGO.fullmatch(word)
    if ago is not None:
        return Moment(int(ago.group(1)) * _UNIT_MS[ago.group(2)], is_ago=True)
    if word.isascii() and word.isdigit():
        return Moment(int(word), is_ago=False)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a time: use 2026-01-01T00:00:00Z, milliseconds since 1970, or -5m (s, m, h, d ago)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Moment(int(moment.timestamp() * 1000), is_ago=False)


def time_text(timestamp_ms: int) -> str:
    """In UTC, as the logs of brokers have it."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6]
