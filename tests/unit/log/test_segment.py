"""One segment: how far a lookup walks, and which entries its indexes get."""

import pytest

from tailrace.log.files.segment import Segment
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.sim.disk import SimDisk

from .storage import make_batch

FOLDER = "/data/t-0"


class CountingFile:
    """A file that counts what is read of it."""

    def __init__(self, file):
        self._file = file
        self.bytes_read = 0

    def __getattr__(self, name):
        return getattr(self._file, name)

    def read(self, position, size):
        data = self._file.read(position, size)
        self.bytes_read += len(data)
        return data


@pytest.fixture
def disk():
    disk = SimDisk()
    disk.make_folder(FOLDER)
    return disk


def make_segment(disk, base_offset=100, **settings):
    config = TopicConfig(**settings)
    return Segment.create(disk, FOLDER, base_offset, config=config, created_ms=0)


def write(segment, offset, count=1, timestamp=1000, value=b"v"):
    batch = make_batch(count, base_offset=offset, timestamp=timestamp, value=value)
    position = segment.size_bytes
    segment.write_all((batch,), len(batch))
    segment.note_batch(position, len(batch), offset + count - 1, timestamp + count - 1)
    return position


def test_index_entries_name_the_last_offset_and_the_start_of_a_batch(disk):
    segment = make_segment(disk, index_interval_bytes=90)
    positions = [write(segment, 100 + 3 * number, 3, timestamp=1000 + 10 * number) for number in range(5)]
    # Each batch is larger than the interval, so each gets an entry but the first.
    entries = [segment.offset_index.entry(number) for number in range(len(segment.offset_index))]
    assert entries == [(3 * number + 2, positions[number]) for number in range(1, 5)]
    times = [segment.time_index.entry(number) for number in range(len(segment.time_index))]
    assert times == [(1000 + 10 * number + 2, 3 * number + 2) for number in range(1, 5)]


def test_time_entries_only_grow_and_the_largest_comes_last(disk):
    segment = make_segment(disk, index_interval_bytes=1)
    for number, timestamp in enumerate([50, 10, 70, 60, 65, 90]):
        write(segment, 100 + number, timestamp=timestamp)
    segment.seal()
    times = [segment.time_index.entry(number) for number in range(len(segment.time_index))]
    assert times == [(50, 0), (70, 2), (90, 5)]
    assert segment.max_timestamp == 90


def test_sealing_adds_the_largest_timestamp_once(disk):
    segment = make_segment(disk)
    write(segment, 100, timestamp=77)
    assert len(segment.time_index) == 0
    segment.seal()
    segment.seal()
    assert [segment.time_index.entry(0)] == [(77, 0)]
    assert len(segment.time_index) == 1


@pytest.mark.parametrize("value", [b"", b"x" * 900, b"x" * 20_000])
def test_a_lookup_reads_one_interval_and_one_header(disk, value):
    segment = make_segment(disk, index_interval_bytes=4096)
    for number in range(300):
        write(segment, 100 + number, value=value)
    batch_size = segment.size_bytes // 300
    file = segment._file = CountingFile(segment.file)
    for offset in range(100, 400, 13):
        file.bytes_read = 0
        assert segment.position_of(offset) == (offset - 100) * batch_size
        # At most two reads: the interval, and the header behind it where the batches are large.
        assert file.bytes_read <= 3 * 4200


def test_an_offset_behind_the_last_batch_is_not_there(disk):
    segment = make_segment(disk)
    write(segment, 100, 5)
    assert segment.position_of(104) == 0
    assert segment.position_of(105) is None


def test_reading_damaged_bytes_is_an_error_and_no_endless_walk(disk):
    segment = make_segment(disk)
    segment.write_all((bytes(200),), 200)
    with pytest.raises(StorageError, match="damaged"):
        segment.position_of(150)


@pytest.mark.parametrize("damaged", [0, 2])
def test_a_batch_whose_offset_has_fallen_is_not_passed_over(damaged, disk):
    """Offsets are not covered by the CRC. A reader would miss the records of the batch, and nobody would say so."""
    segment = make_segment(disk)
    positions = [write(segment, 100 + 3 * number, 3) for number in range(4)]
    disk.flip(segment.path(".log"), positions[damaged] + 7, 6)  # 100 to 36, 106 to 42
    with pytest.raises(StorageError, match=f"no batch begins at {positions[damaged]}"):
        segment.position_of(100 + 3 * damaged)


def test_the_next_offset_is_read_from_the_last_batches(disk):
    segment = make_segment(disk, index_interval_bytes=100)
    assert segment.read_next_offset() == 100
    for number in range(50):
        write(segment, 100 + 2 * number, 2)
    assert segment.read_next_offset() == 200


def test_retention_falls_back_to_the_time_of_the_file(disk):
    segment = make_segment(disk)
    write(segment, 100, timestamp=-1)
    assert segment.max_timestamp == -1
    assert segment.largest_timestamp == disk.clock.wall_ms()


def test_renaming_keeps_the_segment_usable(disk):
    segment = make_segment(disk, index_interval_bytes=1)
    for number in range(10):
        write(segment, 100 + number)
    segment.seal()
    segment.rename(".swap")
    segment.release()
    assert segment.position_of(105) is not None
    assert disk.list(FOLDER) == [f"00000000000000000100.{kind}.swap" for kind in ("index", "log", "timeindex")]
    segment.remove()
    assert disk.list(FOLDER) == []


def test_a_new_segment_forgets_files_of_its_name(disk):
    old = make_segment(disk, index_interval_bytes=1)
    for number in range(10):
        write(old, 100 + number)
    old.seal()
    new = make_segment(disk, index_interval_bytes=1)
    assert new.size_bytes == 0
    write(new, 100)
    new.seal()
    assert disk.size(new.path(".index")) == 0
    assert new.position_of(101) is None
