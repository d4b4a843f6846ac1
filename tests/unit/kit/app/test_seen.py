"""Ids of events: how long they are remembered, and how many."""

import pytest

from tailrace.kit.app.seen import Deduplicate, Seen
from tailrace.kit.retries.plan import SettingError


def test_a_copy_is_known_for_so_long():
    seen = Seen(within_ms=1000, ids_max=10)
    assert seen.take(b"a", 0)
    assert not seen.take(b"a", 1000)
    assert seen.take(b"a", 1001)


def test_the_oldest_are_forgotten_first():
    seen = Seen(within_ms=1000, ids_max=3)
    for number in range(5):
        assert seen.take(b"%d" % number, number)
    assert len(seen) == 3
    assert seen.forgotten == 2
    assert not seen.take(b"4", 10)
    assert seen.take(b"0", 10)


def test_settings():
    with pytest.raises(SettingError, match="'1 day' is not a time"):
        Deduplicate(lambda message: message.raw_key, within="1 day")
    with pytest.raises(SettingError, match="ids_max"):
        Deduplicate(lambda message: message.raw_key, ids_max=0)
