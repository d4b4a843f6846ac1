"""A history of leader epochs that the disk has changed: its batches know better."""

import pytest

from tailrace.log.epochs import FILE_NAME

from .storage import FOLDER, World, append, sync

RIGHT = [(1, 0), (2, 3), (4, 5)]


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
    world = World()
    log = world.open()
    for epoch in (1, 1, 1, 2, 2, 4):
        log.epochs.assign(epoch, log.log_end_offset)
        append(log)
    log.roll()
    sync(log)
    assert [tuple(entry) for entry in log.epochs.entries] == RIGHT
    log.close(clean=is_clean)
    lines = "".join(f"{epoch} {offset}\n" for epoch, offset in wrong)
    world.disk.replace(f"{FOLDER}/{FILE_NAME}", f"0\n{len(wrong)}\n{lines}".encode())
    reopened = world.open(recovery_point=6, is_clean=is_clean)
    assert [tuple(entry) for entry in reopened.epochs.entries] == RIGHT
