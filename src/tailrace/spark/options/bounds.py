"""Where reading starts or ends, as the options say it: not yet asked of the cluster.

Of the ways to say it the more precise in time wins, as in Spark's connector: one timestamp for all, then a timestamp
for each partition, then offsets.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.model.ids import TopicPartition
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.parsing import Options, parse_integer, parse_partition_numbers


class NoMatch(Enum):
    """What to do where no record is as young as the starting time."""

    ERROR = "error"
    LATEST = "latest"


class EndOfLog(NamedTuple):
    """All partitions at EARLIEST, or all at LATEST."""

    end: int


class AtOffsets(NamedTuple):
    """EARLIEST and LATEST may stand for an offset."""

    offsets: dict[TopicPartition, int]


class AtTime(NamedTuple):
    timestamp: int
    no_match: NoMatch


class AtTimes(NamedTuple):
    timestamps: dict[TopicPartition, int]
    no_match: NoMatch


Bound = EndOfLog | AtOffsets | AtTime | AtTimes


def parse_start(options: Options, *, is_stream: bool) -> Bound:
    start = _parse_bound(options, "starting", default=LATEST if is_stream else EARLIEST)
    if not is_stream and _has(start, LATEST):
        raise OptionError(
            "option startingOffsets says latest (or -1), and a batch query ends there: nothing would be read; "
            "say earliest, offsets or a timestamp, or read a stream"
        )
    return start


def parse_end(options: Options) -> Bound:
    end = _parse_bound(options, "ending", default=LATEST)
    if _has(end, EARLIEST):
        raise OptionError("option endingOffsets says earliest (or -2): nothing would be read; say latest or offsets")
    return end


def check_order(start: Bound, end: Bound) -> None:
    """Bounds that contradict each other are refused before anyone is asked."""
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        _check_order(start.offsets, end.offsets, "startingOffsets", "endingOffsets")
    if isinstance(start, AtTimes) and isinstance(end, AtTimes):
        _check_order(start.timestamps, end.timestamps, "startingOffsetsByTimestamp", "endingOffsetsByTimestamp")


def _check_order(
    starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], start_name: str, end_name: str
) -> None:
    unmatched = sorted(starts.keys() ^ ends.keys())
    if unmatched:
        named = ", ".join(map(str, unmatched))
        raise OptionError(f"options {start_name} and {end_name} name different partitions: {named} is in one only")
    for partition, start in starts.items():
        end = ends[partition]
        if 0 <= end < start:
            raise OptionError(f"{partition} would be read from {start} ({start_name}) to {end} ({end_name}): swap them")


def _has(bound: Bound, end: int) -> bool:
    return (isinstance(bound, EndOfLog) and bound.end == end) or (
        isinstance(bound, AtOffsets) and end in bound.offsets.values()
    )


def _parse_bound(options: Options, side: str, *, default: int) -> Bound:
    no_match = _parse_no_match(options)
    timestamp = parse_integer(options, f"{side}Timestamp")
    if timestamp is not None:
        return AtTime(timestamp, no_match)
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in options:
        return AtTimes(parse_partition_numbers(options[name.lower()], name, least=0), no_match)
    name = f"{side}Offsets"
    text = options.get(name.lower(), "").strip()
    if not text:
        return EndOfLog(default)
    if text.lower() in ("earliest", "latest"):
        return EndOfLog(EARLIEST if text.lower() == "earliest" else LATEST)
    if not text.startswith("{"):
        raise OptionError(f'option {name} is {text!r}: expected earliest, latest or {{"topic": {{"0": 23, "1": -1}}}}')
    return AtOffsets(parse_partition_numbers(text, name, least=EARLIEST))


def _parse_no_match(options: Options) -> NoMatch:
    text = options.get("startingoffsetsbytimestampstrategy", NoMatch.ERROR.value)
    try:
        return NoMatch(text.strip().lower())
    except ValueError:
        raise OptionError(f"option startingOffsetsByTimestampStrategy is {text!r}: expected error or latest") from None
