"""The history of leader epochs."""

import pytest

from tailrace.log.epochs import LeaderEpochs
from tailrace.sim.disk import SimDisk

FOLDER = "/data/t-0"


@pytest.fixture
def disk():
    disk = SimDisk()
    disk.make_folder(FOLDER)
    return disk


@pytest.fixture
def epochs(disk):
    epochs = LeaderEpochs(disk, FOLDER)
    for epoch, start_offset in [(1, 0), (3, 10), (4, 25)]:
        epochs.assign(epoch, start_offset)
    return epochs


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 0)),  # older than all: ends where the first begins
        (1, (1, 10)),
        (2, (1, 10)),  # never seen here: the one before it
        (3, (3, 25)),
        (4, (4, 30)),  # the latest ends at the log end
        (5, (-1, -1)),  # not known yet
    ],
)
def test_where_an_epoch_ended(epochs, asked, answer):
    assert epochs.end_offset_for(asked, 30) == answer


def test_an_empty_history_knows_nothing(disk):
    assert LeaderEpochs(disk, FOLDER).end_offset_for(0, 10) == (-1, -1)
    assert LeaderEpochs(disk, FOLDER).latest == -1


def test_an_epoch_begins_once(epochs):
    epochs.assign(4, 27)
    assert epochs.entries == ((1, 0), (3, 10), (4, 25))


def test_a_batch_without_an_epoch_assigns_none(epochs):
    epochs.assign(-1, 40)
    assert epochs.latest == 4


@pytest.mark.parametrize(
    ("epoch", "start_offset", "left"),
    [
        (5, 30, ((1, 0), (3, 10), (4, 25), (5, 30))),
        (5, 25, ((1, 0), (3, 10), (5, 25))),  # nothing was written in epoch 4
        (5, 10, ((1, 0), (5, 10))),
        (2, 30, ((1, 0), (2, 30))),  # an older epoch: what was newer came from another history
        (4, 20, ((1, 0), (3, 10), (4, 20))),
    ],
)
def test_a_new_entry_drops_those_that_contradict_it(epochs, epoch, start_offset, left):
    epochs.assign(epoch, start_offset)
    assert epochs.entries == left


@pytest.mark.parametrize(("end", "left"), [(0, 0), (1, 1), (10, 1), (11, 2), (25, 2), (26, 3), (99, 3)])
def test_cutting_the_end(epochs, end, left):
    epochs.truncate_from_end(end)
    assert len(epochs.entries) == left
    assert epochs.latest == ([-1, 1, 3, 4][left])


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, ((1, 0), (3, 10), (4, 25))),
        (5, ((1, 5), (3, 10), (4, 25))),
        (10, ((3, 10), (4, 25))),
        (24, ((3, 24), (4, 25))),
        (25, ((4, 25),)),
        (99, ((4, 99),)),
    ],
)
def test_cutting_the_start_keeps_the_epoch_that_was_current_there(epochs, start, left):
    epochs.truncate_from_start(start)
    assert epochs.entries == left


@pytest.mark.parametrize(("offset", "epoch"), [(0, 1), (9, 1), (10, 3), (24, 3), (25, 4), (1000, 4)])
def test_the_epoch_of_an_offset(epochs, offset, epoch):
    assert epochs.epoch_for(offset) == epoch


def test_an_offset_before_the_history_has_no_epoch(disk):
    epochs = LeaderEpochs(disk, FOLDER)
    epochs.assign(3, 10)
    assert epochs.epoch_for(9) == -1


def test_the_file_is_kafkas_and_is_owed_until_it_is_synced(disk, epochs):
    entries = epochs.unsynced()
    epochs.store(entries)
    assert disk.read(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n3\n1 0\n3 10\n4 25\n"
    assert epochs.unsynced() is not None
    epochs.assign(7, 50)
    epochs.mark_synced(entries)
    assert epochs.unsynced() == [(1, 0), (3, 10), (4, 25), (7, 50)]
    loaded = LeaderEpochs(disk, FOLDER)
    assert loaded.load()
    assert loaded.unsynced() is None
    assert loaded.entries == ((1, 0), (3, 10), (4, 25))
