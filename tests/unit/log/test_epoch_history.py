"""A history of leader epochs that the disk has changed: its batches know better."""

import pytest

from tailrace.log.epochs import FILE_NAME
from tailrace.wire.records import iterate_headers

from .storage import FOLDER, World, append, sync
from .test_recovery import corrupt

RIGHT = [(1, 0), (2, 3), (4, 5)]
EPOCHS = (1, 1, 1, 2, 2, 4, 4, 4)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [
        [(1, 0), (2, 2), (4, 5)],  # An epoch that begins too early,
        [(1, 0), (2, 4), (4, 5)],  # or too late,
        [(1, 0), (3, 3), (4, 5)],  # has another number,
        [(0, 0), (2, 3), (4, 5)],
        [(1, 0), (2, 3), (6, 5)],
        [(1, 0), (4, 5)],  # or is not there.
        [(1, 0), (2, 3), (3, 4), (4, 5)],
        [],
    ],
)
def test_it_is_made_anew(wrong: list[tuple[int, int]], is_clean: bool) -> None:
    world = _closed_log(is_clean=is_clean)
    _store(world, wrong)
    reopened = world.open(recovery_point=len(EPOCHS), is_clean=is_clean)
    assert [tuple(entry) for entry in reopened.epochs.entries] == RIGHT


@pytest.mark.parametrize("epoch", [0, 1, 3, 1 << 28])
@pytest.mark.parametrize("number", range(len(EPOCHS) - 1))
def test_a_batch_that_contradicts_others_does_not_change_it(number: int, epoch: int) -> None:
    """No checksum covers the epoch of a batch."""
    world = _closed_log(is_clean=True)
    _set_epoch(world, number, epoch)
    is_contradictory = epoch > EPOCHS[number + 1] or (number > 0 and epoch < EPOCHS[number - 1])
    entries = [tuple(entry) for entry in world.open(recovery_point=len(EPOCHS), is_clean=True).epochs.entries]
    assert entries == RIGHT or not is_contradictory


def test_an_epoch_in_which_nobody_has_led_does_not_change_it() -> None:
    """In the last batch no other contradicts it."""
    world = _closed_log(is_clean=True)
    _set_epoch(world, len(EPOCHS) - 1, 1 << 18)
    reopened = world.open(recovery_point=len(EPOCHS), is_clean=True, leader_epoch=4)
    assert [tuple(entry) for entry in reopened.epochs.entries] == RIGHT


@pytest.mark.parametrize(
    ("number", "epoch", "found"),
    [
        (0, 9, RIGHT),  # It rises above those behind it,
        (1, 9, RIGHT),
        (4, 9, RIGHT),
        (2, 0, RIGHT),  # or falls below those before it.
        (6, 1, RIGHT),
        (3, 9, [(1, 0), (2, 4), (4, 5)]),  # Nobody knows in which epoch it was.
    ],
)
def test_without_a_file_such_a_batch_is_passed_over(number: int, epoch: int, found: list[tuple[int, int]]) -> None:
    world = _closed_log(is_clean=True)
    _set_epoch(world, number, epoch)
    world.disk.remove(f"{FOLDER}/{FILE_NAME}")
    reopened = world.open(recovery_point=len(EPOCHS), is_clean=True)
    assert [tuple(entry) for entry in reopened.epochs.entries] == found


def _closed_log(*, is_clean: bool) -> World:
    """A batch for each of EPOCHS, in a closed segment."""
    world = World()
    log = world.open()
    for epoch in EPOCHS:
        log.epochs.assign(epoch, log.log_end_offset)
        append(log)
    log.roll()
    sync(log)
    assert [tuple(entry) for entry in log.epochs.entries] == RIGHT
    log.close(clean=is_clean)
    return world


def _store(world: World, history: list[tuple[int, int]]) -> None:
    lines = "".join(f"{epoch} {offset}\n" for epoch, offset in history)
    world.disk.replace(f"{FOLDER}/{FILE_NAME}", f"0\n{len(history)}\n{lines}".encode())


def _set_epoch(world: World, number: int, epoch: int) -> None:
    name = f"{0:020d}.log"
    positions = [position for position, _ in iterate_headers(world.disk.read(f"{FOLDER}/{name}"))]
    corrupt(world, name, positions[number] + 12, epoch.to_bytes(4, "big"))
