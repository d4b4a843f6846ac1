"""Work in helper threads comes back to the loop; random numbers are in range and ids look as they should."""

import threading

import pytest

from tailrace.model.ids import Uuid, uuid_text
from tailrace.real.background import RealBackground
from tailrace.real.clock import RealClock
from tailrace.real.random import RealRandom


async def test_work_runs_in_another_thread_and_its_result_comes_back():
    background = RealBackground()
    assert await background.run(threading.get_ident) != threading.get_ident()
    background.close()


async def test_a_failure_comes_back_too():
    background = RealBackground()

    def fail() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await background.run(fail)
    background.close()


def test_random_numbers_stay_in_range():
    random = RealRandom()
    assert {random.randrange(3) for _ in range(200)} == {0, 1, 2}
    assert all(0.0 <= random.random() < 1.0 for _ in range(100))
    with pytest.raises(ValueError, match="positive"):
        random.randrange(0)


def test_the_text_of_a_uuid_is_no_option_of_a_command():
    """One in 64 would begin with a hyphen."""
    random = RealRandom()
    assert not any(uuid_text(Uuid(random.uuid())).startswith("-") for _ in range(2000))


def test_uuids_are_version_4_and_differ():
    ids = {RealRandom().uuid() for _ in range(100)}
    assert len(ids) == 100
    assert all(raw[6] >> 4 == 4 and raw[8] >> 6 == 2 for raw in ids)


def test_the_monotonic_clock_does_not_go_back():
    clock = RealClock()
    assert clock.monotonic_ms() <= clock.monotonic_ms()
    assert clock.wall_ms() > 1_700_000_000_000
