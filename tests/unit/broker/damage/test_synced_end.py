"""How far the metadata log was synced: told exactly after a kill, and never too much after a power loss."""

import errno

import pytest

from tailrace.broker.quorum.damage.synced_end import FILE_NAME, SyncedEnd, read_synced_end
from tailrace.model.errors import StorageError
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom

PATH = f"/data/{FILE_NAME}"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_folder("/data")
    return disk


def begun(disk: SimDisk) -> SyncedEnd:
    synced_end = SyncedEnd(disk, "/data")
    synced_end.begin()
    return synced_end


def test_nobody_knows_of_a_new_folder_until_it_is_begun(disk: SimDisk) -> None:
    assert read_synced_end(disk, "/data") is None
    begun(disk)
    disk.power_loss(SimRandom(1))
    assert read_synced_end(disk, "/data") == 0


def test_the_last_note_outlasts_a_kill(disk: SimDisk) -> None:
    synced_end = begun(disk)
    for offset in (3, 8, 21):
        synced_end.note(offset)
        assert read_synced_end(disk, "/data") == offset
    disk.crash()
    assert SyncedEnd(disk, "/data").offset == 21


@pytest.mark.parametrize("seed", range(20))
def test_a_power_loss_takes_no_more_than_what_was_not_flushed(disk: SimDisk, seed: int) -> None:
    synced_end = begun(disk)
    for offset in range(1, 50):
        synced_end.note(offset)
    work = synced_end.begin_flush()
    assert work is not None
    work()
    assert synced_end.begin_flush() is None
    for offset in range(50, 60):
        synced_end.note(offset)
    disk.power_loss(SimRandom(seed))
    found = read_synced_end(disk, "/data")
    assert found is not None
    assert 49 <= found < 60


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_never_forgotten(disk: SimDisk, seed: int) -> None:
    synced_end = begun(disk)
    synced_end.note(100)
    synced_end.lower(40)
    disk.power_loss(SimRandom(seed))
    assert read_synced_end(disk, "/data") == 40


def test_a_cut_above_it_changes_nothing(disk: SimDisk) -> None:
    synced_end = begun(disk)
    synced_end.note(100)
    disk.fail("replace")
    synced_end.lower(100)
    assert read_synced_end(disk, "/data") == 100


def test_without_space_a_cut_takes_the_claim_back(disk: SimDisk) -> None:
    synced_end = begun(disk)
    synced_end.note(100)
    disk.fail("replace", error=errno.ENOSPC)
    synced_end.lower(40)
    assert read_synced_end(disk, "/data") is None
    disk.heal()
    synced_end.note(41)
    assert read_synced_end(disk, "/data") == 41


def test_a_cut_that_cannot_be_told_is_refused(disk: SimDisk) -> None:
    synced_end = begun(disk)
    synced_end.note(100)
    disk.is_read_only = True
    with pytest.raises(StorageError, match="cannot be lowered"):
        synced_end.lower(40)


def test_the_file_stays_small_and_has_always_a_line(disk: SimDisk) -> None:
    synced_end = begun(disk)
    for offset in range(1, 10_000):
        synced_end.note(offset)
        assert disk.size(PATH) <= (64 << 10) + 30
    assert read_synced_end(disk, "/data") == 9999


def test_half_a_line_is_passed_over_and_cut(disk: SimDisk) -> None:
    synced_end = begun(disk)
    synced_end.note(7)
    disk.open(PATH).append([b"0000000000000"])
    disk.crash()
    again = SyncedEnd(disk, "/data")
    assert again.offset == 7
    again.note(9)
    assert read_synced_end(disk, "/data") == 9


@pytest.mark.parametrize("position", range(30, 60, 7))
def test_a_damaged_line_is_passed_over(disk: SimDisk, position: int) -> None:
    synced_end = begun(disk)
    synced_end.note(7)
    data = bytearray(disk.read(PATH))
    data[position] ^= 1
    disk.replace(PATH, bytes(data))
    assert read_synced_end(disk, "/data") == 0


def test_a_full_disk_costs_only_the_note(disk: SimDisk) -> None:
    synced_end = begun(disk)
    synced_end.note(7)
    disk.capacity_bytes = 65
    synced_end.note(8)
    assert read_synced_end(disk, "/data") == 7
    disk.heal()
    synced_end.note(9)
    assert read_synced_end(disk, "/data") == 9
