"""The account that the fault tests rely on sees every kind of damage."""

import pytest

from .traffic import UNKNOWN_OFFSET, check_account

STORED = {(0, 0): b"a:0", (0, 1): b"a:1", (1, 0): b"b:0"}
ACKED = {value: place for place, value in STORED.items()}


def test_what_was_acknowledged_is_stored():
    check_account(ACKED, STORED)
    check_account({**ACKED, b"a:1": (0, UNKNOWN_OFFSET)}, STORED)


@pytest.mark.parametrize(
    ("acked", "stored", "told"),
    [
        (ACKED, {(0, 0): b"a:0", (0, 1): b"a:1"}, "lost"),
        (ACKED, {(0, 0): b"a:0", (0, 2): b"a:1", (1, 0): b"b:0"}, "lost or moved"),
        ({**ACKED, b"a:1": (1, UNKNOWN_OFFSET)}, STORED, "lost or moved"),
        (ACKED, {**STORED, (0, 2): b"a:1"}, "stored twice"),
        (ACKED, {**STORED, (1, 1): b"b:1"}, "never acknowledged"),
        ({b"a:0": (0, 1), b"a:1": (0, 0)}, {(0, 0): b"a:1", (0, 1): b"a:0"}, "out of order"),
    ],
)
def test_damage_is_told(acked: dict[bytes, tuple[int, int]], stored: dict[tuple[int, int], bytes], told: str):
    with pytest.raises(AssertionError, match=told):
        check_account(acked, stored)
