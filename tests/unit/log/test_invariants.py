"""What must always hold of a log: where it does not, the log goes offline, tells of it, and leaves its files alone."""

import pytest

from tailrace.log.directory import LogDirectory
from tailrace.log.files.durability import Durability
from tailrace.log.files.segments import Segments
from tailrace.log.log import Log
from tailrace.log.plain_batches import PlainRules, read_plain
from tailrace.log.retention import Expired, expire_segments
from tailrace.log.validation import ValidatedBatches
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.sim.random import SimRandom
from tailrace.wire.records import read_header

from .storage import PARTITION, World, append, make_batch, read_all, sync


@pytest.fixture
def world():
    return World(
        TopicConfig(index_interval_bytes=200, internal_segment_bytes=250, message_timestamp_before_max_ms=1 << 60)
    )


@pytest.fixture
def log(world):
    log = world.open()
    for _ in range(10):
        append(log)
    assert len(log.segments) > 2
    return log


def assert_gives_up(world: World, log: Log, change, invariant: str) -> None:
    told = []
    log.files.on_broken = told.append
    before = {name: world.disk.read(f"{log.folder}/{name}") for name in world.names(".log")}
    with pytest.raises(StorageError, match=invariant):
        change()
    assert log.is_offline
    assert told == [log.topic_partition]
    with pytest.raises(StorageError, match="offline"):
        log.files.write([make_batch()], len(make_batch()), 10, 10, 1000, producers=log.producers)
    log.close(clean=True)
    assert not log.files.is_stored, "the next start has to look"
    assert {name: world.disk.read(f"{log.folder}/{name}") for name in before} == before
    assert read_all(world.open()) == [*range(10)], "the files are as good as they were"


def test_a_sync_that_covers_more_than_there_is(world, log):
    work, end_offset = log.begin_sync()
    work()
    log.log_end_offset = 5
    assert_gives_up(world, log, lambda: log.mark_synced(end_offset), "recovery_point=10")


def test_a_sync_that_nobody_has_begun(world, log):
    assert_gives_up(world, log, lambda: log.mark_synced(3), "no sync up to 3")


def test_a_log_start_before_the_first_segment(world, log, monkeypatch):
    def delete_one_more(self, segments, *, due_ms):
        self._set(self.all[len(segments) + 1 :])

    log.advance_start(log.segments[1].base_offset)
    monkeypatch.setattr(Segments, "delete", delete_one_more)
    assert_gives_up(world, log, log.delete_expired_segments, "first=")


def test_what_it_believes_does_not_get_into_checkpoints(world):
    disk = world.disk
    directory = LogDirectory.open(disk, world.clock, SimRandom(1), "/data", node_id=1, cluster_id="c" * 22)
    log = directory.open_log(PARTITION, world.config)
    append(log, 5)
    log.advance_start(2)
    sync(log)
    directory.begin_checkpoint()()
    log.log_start_offset, log.log_end_offset = 7, 3
    work, end_offset = log.begin_sync()
    work()
    with pytest.raises(StorageError, match=r"\[7, 3\)"):
        log.mark_synced(end_offset)
    directory.close()
    again = LogDirectory.open(disk, world.clock, SimRandom(1), "/data", node_id=1, cluster_id="c" * 22)
    assert not again.was_clean
    opened = again.open_log(PARTITION, world.config)
    assert (opened.log_start_offset, opened.log_end_offset) == (2, 5)


def test_retention_above_the_high_watermark(world, log, monkeypatch):
    monkeypatch.setattr("tailrace.log.retention.decide_expired_segments", lambda *_, **__: Expired(2, "a bug"))
    assert_gives_up(world, log, lambda: expire_segments(log, now_ms=0, high_watermark=1), "would expire")


def test_segments_out_of_order(world, log, monkeypatch):
    def swap(self, old, new):
        self._set([*reversed(self.all)])

    monkeypatch.setattr(Segments, "replace", swap)
    assert_gives_up(world, log, lambda: log.replace_segments(log.segments[:1], log.segments[0]), "0]")


def found(batch: memoryview, tail: bytes) -> ValidatedBatches:
    return ValidatedBatches(memoryview(bytearray(bytes(batch) + tail)), [read_header(batch)], 1000, 1, -1)


def test_bytes_behind_the_batches_of_a_leader(world, log, monkeypatch):
    batch = make_batch(base_offset=10)
    monkeypatch.setattr("tailrace.log.log.validate_batches", lambda *_, **__: found(batch, b"rest"))
    assert_gives_up(world, log, lambda: log.append_as_follower(batch), "bytes are batches")


def test_offsets_of_a_leader_that_fall(world, log, monkeypatch):
    batch = make_batch(base_offset=10)
    fallen = found(batch, b"")._replace(headers=[read_header(batch)._replace(last_offset_delta=-1)])
    monkeypatch.setattr("tailrace.log.log.validate_batches", lambda *_, **__: fallen)
    assert_gives_up(world, log, lambda: log.append_as_follower(batch), "offsets end at 10")


@pytest.mark.parametrize("tail", [b"", b"rest"])
def test_bytes_behind_the_batches_are_not_written(log, monkeypatch, tail):
    monkeypatch.setattr("tailrace.log.log.validate_batches", lambda *_, **__: found(make_batch(), tail))
    size_bytes = log.size_bytes
    if not tail:
        assert log.append_as_leader(make_batch(), leader_epoch=0).base_offset == 10
        return
    with pytest.raises(AssertionError, match="bytes are batches"):
        log.append_as_leader(make_batch(), leader_epoch=0)
    assert log.size_bytes == size_bytes


def test_a_cut_that_leaves_the_recovery_point_behind(log, monkeypatch):
    """A start would take the log for damaged, since it ends before what was synced."""
    sync(log)
    monkeypatch.setattr(Durability, "lower", lambda *_: None)
    with pytest.raises(StorageError, match="recovery_point=10"):
        log.truncate(4)
    assert log.is_offline


def test_transactions_that_are_replayed_out_of_order(log):
    """The last stable offset is found by their order."""
    options = {"sequence": 0, "transactional": True}
    log.producers.update(read_header(make_batch(base_offset=20, producer_id=1, **options)))
    with pytest.raises(AssertionError, match="15 after"):
        log.producers.update(read_header(make_batch(base_offset=15, producer_id=2, **options)))


def test_an_epoch_that_comes_back(log):
    log.append_as_leader(make_batch(), leader_epoch=5)
    with pytest.raises(AssertionError, match="a leader of epoch 4"):
        log.append_as_leader(make_batch(), leader_epoch=4)
    plain = read_plain(make_batch(), PlainRules(log.config), 1000)
    assert plain is not None
    assert log.append_plain([plain], leader_epoch=5) == 11
    with pytest.raises(AssertionError, match="a leader of epoch 4"):
        log.append_plain([plain], leader_epoch=4)
    with pytest.raises(AssertionError, match="bytes are batches"):
        log.append_plain([(plain[0], plain[1] - 1, *plain[2:])], leader_epoch=5)


def test_a_log_that_is_loaded_wrongly_is_not_opened(world, log, monkeypatch):
    sync(log)
    log.close(clean=False)
    monkeypatch.setattr("tailrace.log.recovery.LogLoader._verify", lambda *_: 3)
    with pytest.raises(StorageError, match=r"cannot be opened: an invariant of it is broken .* \[0, 3\)"):
        world.open()
