"""The simulated disk keeps what a real one must keep, and loses what a real one may lose."""

import errno

import pytest

from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import DeadError
from tailrace.sim.random import SimRandom

PATH = "/data/file"
SEEDS = range(200)


@pytest.fixture
def disk():
    disk = SimDisk()
    disk.make_folder("/data")
    return disk


def after_power_loss(prepare, look):
    """What is seen over many seeds."""
    seen = set()
    for seed in SEEDS:
        disk = SimDisk()
        disk.make_folder("/data")
        prepare(disk)
        disk.power_loss(SimRandom(seed))
        seen.add(look(disk))
    return seen


def test_a_crash_keeps_writes_and_takes_handles_and_locks(disk):
    file = disk.open(PATH, create=True)
    file.append([b"abc"])
    disk.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")
    disk.crash()
    assert disk.read(PATH) == b"abc"
    with pytest.raises(OSError, match="dead"):
        file.append([b"d"])
    disk.lock("/data/.lock")


def test_what_was_synced_survives_a_power_loss_and_of_the_rest_a_part():
    def prepare(disk):
        file = disk.open(PATH, create=True)
        file.append([b"a" * 5000])
        file.sync()
        disk.sync_folder("/data")
        file.append([b"b" * 9000])

    contents = after_power_loss(prepare, lambda disk: disk.read(PATH))
    assert all(content.startswith(b"a" * 5000) for content in contents)
    assert all(set(content[5000:]) <= set(b"b\x00") for content in contents)
    assert len({len(content) for content in contents}) > 100
    assert any(b"\x00" in content and content.endswith(b"b") for content in contents), "a page in the middle is lost"


def test_names_that_were_not_synced_may_vanish_in_order():
    def prepare(disk):
        for name in ("one", "two", "three"):
            disk.open(f"/data/{name}", create=True)

    assert after_power_loss(prepare, lambda disk: tuple(disk.list("/data"))) == {
        (),
        ("one",),
        ("one", "two"),
        ("one", "three", "two"),
    }


def test_a_rename_holds_as_a_whole_or_not_at_all():
    def prepare(disk):
        disk.replace("/data/a", b"old")
        disk.replace("/data/a", b"new", sync=False)

    seen = after_power_loss(prepare, lambda disk: disk.read("/data/a"))
    assert b"old" in seen
    # The new name without the content: what a replacement without a sync risks.
    assert b"" in seen
    assert b"new" in seen


def test_a_synced_replacement_is_there():
    assert after_power_loss(lambda disk: disk.replace(PATH, b"x"), lambda disk: disk.read(PATH)) == {b"x"}


def test_an_unsynced_truncation_may_be_undone():
    def prepare(disk):
        disk.replace(PATH, b"0123456789")
        disk.open(PATH).truncate(4)

    assert after_power_loss(prepare, lambda disk: disk.read(PATH)) == {b"0123", b"0123456789"}


def test_a_full_disk_takes_what_fits(disk):
    file = disk.open(PATH, create=True)
    disk.capacity_bytes = 10
    with pytest.raises(OSError, match="ENOSPC"):
        file.append([b"12345678", b"90123"])
    assert (file.size, disk.free_bytes(PATH)) == (10, 0)
    file.truncate(3)
    assert disk.free_bytes(PATH) == 7


def test_faults_match_operation_and_path_and_can_be_counted(disk):
    file, other = disk.open(PATH, create=True), disk.open("/data/other", create=True)
    disk.fail("append", "*/file", error=errno.EIO, count=1)
    other.append([b"fine"])
    with pytest.raises(OSError, match="EIO"):
        file.append([b"x"])
    file.append([b"x"])
    disk.fail("sync")
    with pytest.raises(OSError, match="EIO"):
        other.sync()
    disk.heal()
    other.sync()


def test_a_read_only_disk_can_be_read(disk):
    disk.replace(PATH, b"x")
    disk.is_read_only = True
    assert disk.read(PATH) == b"x"
    with pytest.raises(OSError, match="EROFS"):
        disk.remove(PATH)
    with pytest.raises(OSError, match="EROFS"):
        disk.open("/data/new", create=True)


def test_folders_move_with_what_is_in_them(disk):
    disk.make_folder("/data/a/b")
    disk.replace("/data/a/b/file", b"x")
    disk.rename("/data/a", "/data/c")
    assert disk.list("/data") == ["c"]
    assert disk.read("/data/c/b/file") == b"x"
    disk.remove_folder("/data/c")
    assert disk.list("/data") == []


def test_the_boot_id_tells_of_power_losses_only(disk):
    boot = disk.boot_id()
    disk.crash()
    assert disk.boot_id() == boot
    disk.power_loss(SimRandom(1))
    assert disk.boot_id() != boot


def test_a_process_dies_in_the_middle_of_an_operation(disk):
    deaths = []
    file = disk.open(PATH, create=True)
    disk.die_after(1, torn_bytes=2, on_death=lambda: deaths.append("dead"))
    file.append([b"abc"])
    with pytest.raises(DeadError):
        file.append([b"defg"])
    with pytest.raises(DeadError):
        disk.list("/data")
    assert deaths == ["dead"]
    disk.crash()
    assert disk.read(PATH) == b"abcde"


def test_an_observer_sees_no_faults_and_uses_none_up(disk):
    disk.open(PATH, create=True).append([b"abc"])
    assert not disk.is_faulty
    disk.fail("read", count=1)
    with disk.observed():
        assert disk.read(PATH) == b"abc"
    assert disk.is_faulty
    with pytest.raises(OSError, match="EIO"):
        disk.read(PATH)


def test_damage_is_in_what_was_synced_and_nobody_is_told():
    def prepare(disk):
        file = disk.open(PATH, create=True)
        file.append([b"abcdef"])
        file.sync()
        disk.sync_folder("/data")
        disk.flip(PATH, 1, 0)
        disk.cut(PATH, 4)
        assert file.read(0, 10) == b"accd", "whoever has it open sees it too"

    assert after_power_loss(prepare, lambda disk: disk.read(PATH)) == {b"accd"}


def test_what_is_lost_does_not_come_back_and_stays_readable_for_who_has_it_open():
    def prepare(disk):
        disk.make_folder("/data/orders-0")
        disk.sync_folder("/data")
        for name in ("/data/orders-0/log", PATH):
            file = disk.open(name, create=True)
            file.append([b"abc"])
            file.sync()
        disk.sync_folder("/data")
        disk.lose("/data/orders-0")
        disk.lose(PATH)
        assert file.read(0, 3) == b"abc"
        assert disk.list("/data") == []

    assert after_power_loss(prepare, lambda disk: tuple(disk.list("/data"))) == {()}
