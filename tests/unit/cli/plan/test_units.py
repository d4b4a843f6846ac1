"""Quantities as people write them."""

import argparse

import pytest

from tailrace.cli.plan.units import (
    duration_text,
    parse_bandwidth,
    parse_duration,
    parse_rate,
    parse_size,
    rate_text,
    size_text,
)


@pytest.mark.parametrize(
    ("text", "per_second"),
    [
        ("1M/s", 1e6),
        ("1m/s", 1e6),
        ("20k", 20_000),
        ("1,000,000/s", 1e6),
        ("1_000_000 / sec", 1e6),
        ("1e6/s", 1e6),
        ("86.4B/day", 1e6),
        ("86.4 billion msg/day", 1e6),
        ("1T/d", 1e12 / 86_400),
        ("60 messages/min", 1),
        ("3.6k records/hour", 1),
    ],
)
def test_rates(text, per_second):
    assert parse_rate(text) == pytest.approx(per_second)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("100", 100),
        ("100B", 100),
        ("1KB", 1_000),
        ("1kb", 1_000),
        ("1k", 1_000),
        ("1KiB", 1_024),
        ("1.5 MB", 1.5e6),
        ("64KiB", 65_536),
        ("16TB", 16e12),
        ("2PiB", 2 * 1024**5),
    ],
)
def test_sizes(text, size_bytes):
    assert parse_size(text) == pytest.approx(size_bytes)


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800), ("36h", 129_600), ("90 s", 90), ("15min", 900), ("2 weeks", 1_209_600)]
)
def test_lengths_of_time(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "bytes_per_s"), [("10Gbit/s", 1.25e9), ("10Gbps", 1.25e9), ("1.25GB/s", 1.25e9), ("800 Mbit", 1e8)]
)
def test_speeds(text, bytes_per_s):
    assert parse_bandwidth(text) == pytest.approx(bytes_per_s)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_rate, "fast"),
        (parse_rate, "1Q/s"),
        (parse_rate, "1M/fortnight"),
        (parse_rate, "-1/s"),
        (parse_rate, "0/s"),
        (parse_rate, ""),
        (parse_size, "1KB/s"),
        (parse_size, "1XB"),
        (parse_duration, "7"),
        (parse_duration, "7d/s"),
        (parse_bandwidth, "10G"),
        (parse_bandwidth, "10Gbit/day"),
    ],
)
def test_what_is_no_quantity_is_told_with_the_word_itself(parse, text):
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


def test_an_unknown_unit_shows_how_it_is_written():
    with pytest.raises(argparse.ArgumentTypeError, match=r"'7 fortnights' is not a length of time: write 90s, 15m"):
        parse_duration("7 fortnights")


def test_quantities_are_told_shortly():
    assert [size_text(size) for size in (1, 999, 1_000, 65_536, 1.8144e15)] == [
        "1 B",
        "999 B",
        "1 KB",
        "65.5 KB",
        "1.81 PB",
    ]
    assert rate_text(1e12 / 86_400) == "11.6 M msg/s"
    assert [duration_text(span) for span in (5, 300, 7_200, 604_800)] == ["5 s", "5 min", "2 h", "7 d"]
