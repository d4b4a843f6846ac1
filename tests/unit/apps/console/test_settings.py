"""Settings as people read them."""

from __future__ import annotations

import pytest

from tailrace.apps.console.settings import hint, shown_settings
from tailrace.client.admin import SOURCE_DEFAULT, SOURCE_TOPIC, ConfigEntry, ConfigSynonym

ALL_BROKERS = 3


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("retention.ms", "604800000", "7.0 d"),
        ("retention.ms", "-1", ""),
        ("segment.ms", "900", ""),
        ("segment.bytes", "1073741824", "1.1 GB"),
        ("flush.messages", "9223372036854775807", "no limit"),
        ("flush.messages", "20000", ""),
        ("cleanup.policy", "delete", ""),
        ("ssl.keystore.password", None, ""),
    ],
)
def test_large_numbers_are_told_in_larger_units(name, value, expected):
    assert hint(name, value) == expected


def test_own_settings_come_first_and_each_has_what_it_would_be_without():
    synonyms = (ConfigSynonym("retention.ms", "5", SOURCE_TOPIC), ConfigSynonym("log.retention.ms", "7", ALL_BROKERS))
    entries = [
        ConfigEntry("cleanup.policy", "delete", SOURCE_DEFAULT, False),
        ConfigEntry("password", None, ALL_BROKERS, False, is_sensitive=True),
        ConfigEntry("retention.ms", "5", SOURCE_TOPIC, False, synonyms=synonyms),
    ]
    shown = shown_settings(entries, own=SOURCE_TOPIC)
    assert [(each.name, each.default, each.source, each.is_own) for each in shown] == [
        ("retention.ms", "7", "topic", True),
        ("cleanup.policy", "delete", "default", False),
        ("password", "(hidden)", "all brokers", False),
    ]
