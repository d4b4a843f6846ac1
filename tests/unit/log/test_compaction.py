"""Compaction of a real Log on the simulated disk: what stays, what goes, what readers and crashes see."""

import errno
import random
from itertools import islice

import pytest

from tailrace.log.compaction.cleaner import FAILED_REST_MS, drive
from tailrace.log.compaction.run import CompactionAborted
from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.background import SimBackground
from tailrace.sim.random import SimRandom
from tailrace.wire.records import Compression

from .shelf import FOLDER, LIMITS, PARTITION, Shelf, each_step, finish


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    shelf = Shelf()
    shelf.append(("a", "1"), ("b", "1"), ("a", "2"))
    shelf.append(("c", "1"), ("b", "2"))
    shelf.roll()
    shelf.append(("c", "2"))
    outcome = shelf.compact()
    # The active segment is not looked at, so the older value of c stays.
    assert shelf.content() == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "c", "2")]
    assert (outcome.records_read, outcome.records_kept, outcome.first_dirty_offset) == (5, 3, 5)
    assert shelf.log.log_end_offset == 6
    assert shelf.begin() is None


def test_small_segments_become_one() -> None:
    shelf = Shelf(segment_bytes=1000)
    for index in range(10):
        shelf.append((f"key{index}", "x"))
        shelf.roll()
    assert len(shelf.log.segments) == 11
    before = shelf.content()
    shelf.compact()
    assert shelf.content() == before
    assert len(shelf.log.segments) == 2
    assert [name for name in shelf.files() if name.endswith((".log", ".index", ".timeindex"))] == [
        f"{base:020d}{kind}" for base in (0, 10) for kind in (".index", ".log", ".timeindex")
        if not (base == 10 and kind != ".log")
    ]  # fmt: skip


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_keep_their_codec(codec: Compression) -> None:
    shelf = Shelf()
    shelf.append(("a", "1" * 300), ("b", "1"), compression=codec)
    shelf.append(("a", "2" * 300), compression=codec)
    shelf.roll()
    shelf.compact()
    assert [header.compression for header, _ in shelf.batches()] == [codec, codec]
    assert shelf.content() == [(1, "b", "1"), (2, "a", "2" * 300)]


def test_large_blocks_are_packed_in_the_background() -> None:
    shelf = Shelf(segment_bytes=1 << 20, limits=LIMITS._replace(max_decompressed_bytes=1 << 22))
    noise = random.Random(1)
    values = [f"{noise.getrandbits(8000):x}" for _ in range(20)]
    shelf.append(*[(f"k{i}", value) for i, value in enumerate(values)], compression=Compression.ZSTD)
    shelf.append(("k0", "new"))
    shelf.roll()
    steps = shelf.begin()
    assert steps is not None
    handed_out = [getattr(work, "func", work).__name__ for work in each_step(steps) if work is not None]
    assert handed_out == [
        "decompress",
        "decompress",
        "compress",
        "_make_durable",
        "_remove_all",
        "sync_folder",
        "_store",
    ]
    assert [key for _, key, _ in shelf.content()] == [f"k{i}" for i in range(1, 20)] + ["k0"]


def test_a_tombstone_removes_its_key_at_once_and_itself_after_its_time() -> None:
    shelf = Shelf(delete_retention_ms=1000)
    shelf.append(("a", "1"), ("b", "1"))
    shelf.append(("a", None))
    shelf.roll()
    shelf.compact()
    assert shelf.content() == [(1, "b", "1"), (2, "a", None)]

    def clean_again() -> None:
        shelf.append(("z", "z"))
        shelf.roll()
        shelf.compact()

    shelf.clock.advance_ms(999)
    clean_again()
    assert (2, "a", None) in shelf.content()
    shelf.clock.advance_ms(1)
    clean_again()
    assert (2, "a", None) not in shelf.content()
    assert (1, "b", "1") in shelf.content()


def test_timestamps_survive_the_stamping_of_a_horizon() -> None:
    shelf = Shelf()
    shelf.append(("a", "1"), ("b", None), ("c", "1"))
    shelf.append(("c", "2"))
    before = {record.offset: record.timestamp for record in shelf.records()}
    shelf.roll()
    shelf.compact()
    assert {record.offset: record.timestamp for record in shelf.records()} == {o: before[o] for o in (0, 1, 3)}
    assert shelf.log.offset_by_timestamp(before[3], end_offset=4) is not None


def test_the_last_batch_of_a_producer_outlives_its_records() -> None:
    shelf = Shelf()
    for sequence in range(3):
        shelf.append(("a", "1"), producer_id=5, producer_epoch=0, base_sequence=sequence)
    shelf.append(("a", "2"))
    shelf.append(("b", "2"))
    shelf.roll()
    shelf.compact()
    headers = [header for header, _ in shelf.batches()]
    assert [(header.base_offset, header.record_count) for header in headers] == [(2, 0), (3, 1), (4, 1)]
    assert (headers[0].producer_id, headers[0].last_sequence) == (5, 2)
    # Without any snapshot the state comes back from the log.
    for name in shelf.files():
        if name.endswith(".snapshot"):
            shelf.disk.remove(f"{FOLDER}/{name}")
    shelf.reopen()
    assert shelf.log.producers.states[5].last_sequence == 2


def test_the_last_offset_of_the_cleaned_range_is_not_lost() -> None:
    shelf = Shelf()
    shelf.append(("a", "1"))
    shelf.append(("b", None))
    shelf.roll()
    shelf.compact()
    shelf.clock.advance_ms(shelf.config.delete_retention_ms)
    shelf.append(("a", "2"))
    shelf.roll()
    shelf.compact()
    assert shelf.content() == [(2, "a", "2")]
    shelf.append(("a", "3"), ("c", None))
    shelf.roll()
    shelf.compact()
    shelf.clock.advance_ms(shelf.config.delete_retention_ms)
    shelf.append(("a", "4"))
    shelf.roll()
    shelf.compact()
    shelf.reopen()
    assert shelf.log.log_end_offset == 6
    assert shelf.content() == [(5, "a", "4")]


def test_keys_that_do_not_fit_take_several_passes() -> None:
    shelf = Shelf(limits=LIMITS._replace(map_bytes=1500))
    for round_ in range(2):
        for index in range(40):
            shelf.append((f"key{index}", str(round_)))
    shelf.roll()
    passes = 0
    while (steps := shelf.begin()) is not None:
        finish(steps)
        passes += 1
    assert passes > 3
    assert shelf.content() == [(40 + index, f"key{index}", "1") for index in range(40)]


def test_a_batch_larger_than_the_map_still_makes_progress() -> None:
    shelf = Shelf(limits=LIMITS._replace(map_bytes=1))
    shelf.append(*[(f"k{index}", "1") for index in range(20)])
    shelf.append(*[(f"k{index}", "2") for index in range(20)])
    shelf.roll()
    assert shelf.compact().first_dirty_offset == 20
    assert shelf.compact().first_dirty_offset == 40
    assert shelf.content() == [(20 + index, f"k{index}", "2") for index in range(20)]


def test_readers_keep_the_file_they_hold() -> None:
    shelf = Shelf()
    shelf.append(("a", "1"))
    shelf.append(("a", "2"))
    shelf.roll()
    slice_ = shelf.log.read(0, 1 << 20, end_offset=2)
    assert slice_ is not None
    before = slice_.read()
    shelf.compact()
    assert slice_.read() == before
    assert shelf.content() == [(1, "a", "2")]


def test_reads_and_appends_go_on_between_any_two_steps() -> None:
    shelf = Shelf(segment_bytes=400)
    for index in range(60):
        shelf.append((f"k{index % 7}", str(index)))
    shelf.roll()
    expected = {key: value for _, key, value in shelf.content()}
    steps = shelf.begin()
    assert steps is not None
    appended = 0
    for _ in each_step(steps):
        assert {key: value for _, key, value in shelf.content() if key != "new"} == expected
        if appended < 30:
            shelf.append(("new", str(appended)))
            appended += 1
    assert appended > 3
    assert [value for _, key, value in shelf.content() if key == "new"] == [str(index) for index in range(appended)]


def test_truncation_below_the_run_aborts_it() -> None:
    shelf = Shelf(segment_bytes=200)
    for index in range(20):
        shelf.append(("a", str(index)))
    shelf.roll()
    steps = shelf.begin()
    assert steps is not None
    next(steps)
    shelf.log.truncate(5)
    with pytest.raises(CompactionAborted):
        finish(steps)
    assert not [name for name in shelf.files() if name.endswith((".cleaned", ".swap"))]
    assert [offset for offset, _, _ in shelf.content()] == list(range(5))


def test_closing_the_run_leaves_no_file() -> None:
    shelf = Shelf()
    for index in range(200):
        shelf.append(("a", str(index)))
    shelf.roll()
    before = shelf.content()
    for count in range(1, 12):
        steps = shelf.begin()
        assert steps is not None
        for _ in islice(each_step(steps), count):
            pass
        shelf.cleaner.abort(TopicPartition("other", PartitionIndex(0)))
        shelf.cleaner.abort(PARTITION)
        assert not [name for name in shelf.files() if name.endswith(".cleaned")]
        if shelf.content() != before:
            break
    assert shelf.content()[-1] == before[-1]


def test_the_first_dirty_offset_survives_a_restart_and_is_forgotten_with_the_log() -> None:
    shelf = Shelf()
    shelf.append(("a", "1"))
    shelf.append(("a", "2"))
    shelf.roll()
    shelf.compact()
    shelf.reopen()
    shelf.sync()
    assert shelf.begin() is None
    shelf.cleaner.forget(PARTITION)
    assert shelf.compact().records_read == 1


def test_unsynced_segments_wait() -> None:
    shelf = Shelf()
    shelf.append(("a", "1"))
    shelf.log.roll()
    assert shelf.begin() is None
    shelf.sync()
    assert shelf.begin() is not None


def test_a_failing_disk_ends_the_run_and_not_the_log() -> None:
    shelf = Shelf()
    for index in range(50):
        shelf.append(("a", str(index)))
    shelf.roll()
    before = shelf.content()
    shelf.disk.fail("append", "*.cleaned", error=errno.ENOSPC)
    steps = shelf.begin()
    assert steps is not None
    with pytest.raises(StorageError):
        finish(steps)
    # The first segment had nothing left to write and was replaced; the second one was not.
    assert shelf.content() == before[-len(shelf.content()) :] != before[-1:]
    assert not [name for name in shelf.files() if name.endswith(".cleaned")]
    shelf.disk.heal()
    assert shelf.begin() is None
    shelf.clock.advance_ms(FAILED_REST_MS)
    shelf.compact()
    assert shelf.content() == [before[-1]]


def test_a_damaged_batch_is_not_copied() -> None:
    shelf = Shelf()
    shelf.append(("a", "1"))
    shelf.append(("a", "2"))
    shelf.roll()
    path = f"{FOLDER}/{0:020d}.log"
    data = bytearray(shelf.disk.read(path))
    data[-1] ^= 1
    shelf.disk.replace(path, bytes(data))
    shelf.log.segments[0].release()
    steps = shelf.begin()
    assert steps is not None
    with pytest.raises(StorageError):
        finish(steps)
    assert shelf.disk.read(path) == data


async def test_drive_runs_steps_on_a_loop() -> None:
    shelf = Shelf()
    for index in range(500):
        shelf.append(("a", str(index)))
    shelf.roll()
    turns = 0

    async def wait_turn() -> None:
        nonlocal turns
        turns += 1

    steps = shelf.begin()
    assert steps is not None
    outcome = await drive(steps, SimBackground(), wait_turn)
    assert outcome is not None
    assert outcome.records_kept == 1
    assert turns > 5
    assert shelf.content() == [(499, "a", "499")]

    shelf.append(("a", "last"))
    shelf.roll()
    shelf.disk.fail("sync", "*.cleaned")
    steps = shelf.begin()
    assert steps is not None
    with pytest.raises(StorageError):
        await drive(steps, SimBackground(), wait_turn)


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_loss_the_log_is_whole(seed: int) -> None:
    """The machine dies at a step that chance picks; what is then there, holds every key's last value."""
    chance = random.Random(seed)
    shelf = Shelf(segment_bytes=400)
    for index in range(60):
        shelf.append((f"k{index % 7}", str(index)))
    shelf.roll()
    expected = {key: value for _, key, value in shelf.content()}
    steps = shelf.begin()
    assert steps is not None
    for _ in islice(each_step(steps), chance.randrange(40)):
        pass
    shelf.disk.power_loss(SimRandom(seed))
    steps.close()
    shelf.reopen()
    assert {key: value for _, key, value in shelf.content()} == expected
    assert shelf.log.log_end_offset == 60
