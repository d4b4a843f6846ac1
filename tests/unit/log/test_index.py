"""The sparse index: the same search over the file and over what is not in it yet."""

import errno
from struct import Struct

import pytest

from tailrace.log.files.index import OFFSET_ENTRY, SPILL_BYTES, TIME_ENTRY, SparseIndex
from tailrace.sim.disk import SimDisk

PATH = "/data/t-0/00000000000000000000.index"


@pytest.fixture
def disk():
    disk = SimDisk()
    disk.make_folder("/data/t-0")
    return disk


def make_index(disk, count, entry: Struct = OFFSET_ENTRY) -> SparseIndex:
    index = SparseIndex(disk, PATH, entry)
    for number in range(count):
        index.append(10 * number + 5, 1000 * number)
    return index


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY])
@pytest.mark.parametrize("count", [0, 1, 2, 511, 512, 513, 1300])
def test_floor_is_the_last_entry_not_above_the_target(disk, entry, count):
    index = make_index(disk, count, entry)
    assert len(index) == count
    for target in range(0, 10 * count + 20, 7):
        expected = min((target - 5) // 10, count - 1) if target >= 5 else -1
        assert index.floor(target) == expected
    for target in range(0, 1000 * count + 20, 777):
        assert index.floor(target, column=1) == min(target // 1000, count - 1)


def test_entries_are_kafkas_bytes(disk):
    index = make_index(disk, 3)
    index.write_out()
    assert disk.read(PATH).hex() == "00000005000000000000000f000003e800000019000007d0"
    time_index = SparseIndex(disk, PATH + "2", TIME_ENTRY)
    time_index.append(1_700_000_000_000, 7)
    time_index.write_out()
    assert disk.read(PATH + "2").hex() == "0000018bcfe5680000000007"


def test_entries_go_to_the_file_in_large_pieces(disk):
    index = make_index(disk, SPILL_BYTES // 8 - 1)
    assert not disk.exists(PATH)
    index.append(100_000, 10_000_000)
    assert disk.size(PATH) == SPILL_BYTES


def test_a_file_is_taken_up_where_it_was_left(disk):
    make_index(disk, 700).write_out()
    index = SparseIndex(disk, PATH, OFFSET_ENTRY)
    assert index.attach() == ""
    index.append(7005, 700_000)
    assert len(index) == 701
    assert [index.entry(number) for number in (0, 699, 700)] == [(5, 0), (6995, 699_000), (7005, 700_000)]


def test_what_is_wrong_with_a_file_is_told(disk):
    index = SparseIndex(disk, PATH, OFFSET_ENTRY)
    assert "missing" in index.attach()
    disk.open(PATH, create=True).append([bytes(9)])
    assert "multiple of 8" in index.attach()


@pytest.mark.parametrize("kept", [0, 1, 511, 512, 600, 700])
def test_truncation_keeps_the_first_entries(disk, kept):
    index = make_index(disk, 700)
    assert index.floor(0) == -1
    index.truncate(kept)
    assert len(index) == kept
    assert index.floor(1 << 30) == kept - 1
    index.append(100_000, 10_000_000)
    assert index.entry(kept) == (100_000, 10_000_000)
    index.write_out()
    assert disk.size(PATH) == 8 * (kept + 1)


def test_a_full_disk_costs_memory_only(disk):
    disk.open(PATH, create=True)
    disk.fail("append", "*", error=errno.ENOSPC)
    index = make_index(disk, 1300)
    assert disk.size(PATH) == 0
    assert index.floor(10 * 1000 + 5) == 1000
    disk.heal()
    index.write_out()
    assert disk.size(PATH) == 1300 * 8


def test_bytes_of_an_earlier_index_are_not_mixed_in(disk):
    disk.open(PATH, create=True).append([b"old" * 100])
    make_index(disk, 2).write_out()
    assert disk.size(PATH) == 16
