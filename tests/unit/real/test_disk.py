"""The real disk against the kernel, in a temporary folder."""

import errno
import os
import resource
import threading

import pytest

from tailrace.real import disk as real_disk
from tailrace.real.disk import RealDisk


@pytest.fixture
def disk():
    return RealDisk()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "file.log")


def test_what_is_appended_is_read_by_position(disk, path):
    file = disk.open(path, create=True)
    file.append([b"hello"])
    file.append([b" ", bytearray(b"wor"), memoryview(b"ld")])
    assert (file.size, file.read(0, 100), file.read(4, 3)) == (11, b"hello world", b"o w")
    assert file.read(11, 5) == b""
    assert disk.read(path) == b"hello world"
    file.sync()


def test_two_handles_see_the_same_bytes_and_appending_goes_to_the_end(disk, path):
    first, second = disk.open(path, create=True), disk.open(path)
    first.append([b"abc"])
    assert second.read(0, 10) == b"abc"
    disk.open(path).append([b"def"])
    assert first.read(0, 3) + second.read(3, 10) == b"abcdef"
    assert disk.open(path).size == 6


def test_what_was_just_appended_is_read_without_a_system_call(disk, path, monkeypatch):
    file = disk.open(path, create=True)
    buffer = bytearray(b"0123456789")
    file.append([b"before"])
    file.append([memoryview(buffer)])
    buffer[:] = b"reused    "
    monkeypatch.setattr(real_disk.os, "pread", None)
    monkeypatch.setattr(real_disk.os, "preadv", None)
    assert file.is_resident(6, 10)
    assert file.read(6, 10) == b"0123456789"
    assert file.read(8, 3) == b"234"
    assert file.read(14, 100) == b"89"
    assert file.read(16, 1) == file.read(99, 1) == b""


@pytest.mark.parametrize("then", ["append", "append long", "truncate", "truncate to its end"])
def test_what_was_appended_before_is_read_from_the_file(disk, path, then):
    file = disk.open(path, create=True)
    file.append([b"0123456789"])
    match then:
        case "append":
            file.append([b"ab"])
            expected = b"0123456789ab"
        case "append long":
            file.append([b"long" * 2_000])
            expected = b"0123456789" + b"long" * 2_000
        case "truncate":
            file.truncate(4)
            expected = b"0123"
        case _:
            file.truncate(10)
            expected = b"0123456789"
    assert file.read(0, 10_000) == expected
    for position in range(14):
        assert file.read(position, 3) == expected[position : position + 3]


def test_more_buffers_than_one_system_call_takes(disk, path):
    file = disk.open(path, create=True)
    file.append([b"%06d" % number for number in range(2500)])
    assert file.size == 15_000
    assert file.read(6 * 2499, 6) == b"002499"


def test_short_writes_are_continued(disk, path, monkeypatch):
    file = disk.open(path, create=True)
    write, writev = os.write, os.writev
    monkeypatch.setattr(real_disk.os, "write", lambda fd, data: write(fd, data[:3]))
    monkeypatch.setattr(real_disk.os, "writev", lambda fd, views: writev(fd, [views[0][:2]]))
    file.append([b"0123456789"])
    file.append([b"abc", b"", b"defgh"])
    monkeypatch.undo()
    assert file.read(0, 100) == b"0123456789abcdefgh"
    assert file.size == 18


def test_a_failed_write_tells_how_far_it_came(disk, path):
    file = disk.open(path, create=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            file.append([b"x" * 1500])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.size == 1000
    file.truncate(10)
    file.append([b"y"])
    assert file.read(9, 5) == b"xy"


def test_truncation_moves_the_end(disk, path):
    file = disk.open(path, create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    file.append([b"x"])
    assert disk.read(path) == b"0123x"


def test_a_map_shows_the_content_and_outlives_the_file(disk, path):
    file = disk.open(path, create=True)
    assert bytes(file.map()) == b""
    file.append([b"0123456789"])
    mapped = file.map()
    disk.remove(path)
    del file
    assert bytes(mapped) == b"0123456789"
    assert mapped.readonly


def test_an_open_file_outlives_its_name_and_is_closed_with_its_last_holder(disk, path):
    file = disk.open(path, create=True)
    file.append([b"abc"])
    descriptor = file.fileno()
    disk.remove(path)
    assert file.read(0, 3) == b"abc"
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_what_was_just_written_is_resident(disk, path):
    file = disk.open(path, create=True)
    file.append([b"x" * 1_000_000])
    assert file.is_resident(0, 1_000_000)
    assert file.is_resident(999_999, 1)
    assert file.is_resident(0, 0)


@pytest.mark.parametrize(("error", "answer"), [(errno.EAGAIN, False), (errno.EOPNOTSUPP, True)])
def test_residence_is_what_the_kernel_says(disk, path, monkeypatch, error, answer):
    file = disk.open(path, create=True)
    file.append([b"x" * 300_000])

    def preadv(descriptor, buffers, position, flags):
        if position >= 131_072:
            raise OSError(error, "refused")
        return 1

    monkeypatch.setattr(real_disk, "_NO_WAIT", 8)
    monkeypatch.setattr(real_disk.os, "preadv", preadv)
    assert file.is_resident(0, 300_000) is answer
    assert file.is_resident(0, 1000)


def test_what_is_read_once_is_not_kept_in_memory_unless_it_was_there(disk, path):
    size = 4 << 20
    file = disk.open(path, create=True)
    file.append([os.urandom(size)])
    assert file.read_once(0, 1000) == file.read(0, 1000)
    assert file.is_resident(0, size)
    file.sync()
    # A probe of a page must not read others ahead.
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file.is_resident(0, size):
        pytest.skip("this file system keeps its files in memory, or does not tell")
    reader = disk.open(path)
    for position in range(0, size, 256 << 10):
        assert len(reader.read_once(position, 256 << 10)) == 256 << 10
    assert not any(file.is_resident(position, 1) for position in range(8192, size, 128 << 10))
    # What others have read stays.
    data = file.read(1 << 20, 1 << 20)
    assert reader.read_once(1 << 20, 1 << 20) == data
    assert file.is_resident(1 << 20, 1 << 20)


def test_a_missing_file_is_not_made_without_being_asked(disk, path):
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    assert not os.path.exists(path)


def test_replacing_is_whole(disk, path):
    disk.replace(path, b"old")
    disk.replace(path, b"new content", sync=False)
    assert disk.read(path) == b"new content"
    assert os.listdir(os.path.dirname(path)) == ["file.log"]
    assert disk.size(path) == 11


def test_a_replacement_that_fails_leaves_the_old_content_and_no_litter(disk, path, monkeypatch):
    disk.replace(path, b"old")

    def refuse(descriptor):
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(real_disk.os, "fdatasync", refuse)
    with pytest.raises(OSError, match="refused"):
        disk.replace(path, b"new")
    assert disk.read(path) == b"old"
    assert os.listdir(os.path.dirname(path)) == ["file.log"]


def test_threads_may_replace_the_same_file(disk, path):
    contents = [bytes([65 + number]) * 100_000 for number in range(4)]
    threads = [
        threading.Thread(target=lambda data=data: [disk.replace(path, data, sync=False) for _ in range(20)])
        for data in contents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert disk.read(path) in contents
    assert os.listdir(os.path.dirname(path)) == ["file.log"]


def test_folders(disk, tmp_path):
    folder = str(tmp_path / "a" / "b")
    disk.make_folder(folder)
    disk.make_folder(folder)
    for name in ("z", "m", "a"):
        disk.open(f"{folder}/{name}", create=True)
    assert disk.list(folder) == ["a", "m", "z"]
    assert disk.is_folder(folder)
    assert not disk.is_folder(f"{folder}/a")
    disk.rename(f"{folder}/a", f"{folder}/z")
    disk.sync_folder(folder)
    assert disk.list(folder) == ["m", "z"]
    disk.remove_folder(folder)
    assert not os.path.exists(folder)
    with pytest.raises(FileNotFoundError):
        disk.list(folder)


def test_modification_times_are_milliseconds(disk, path):
    disk.open(path, create=True)
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    assert disk.modified_ms(path) == 1_700_000_000_123


def test_a_lock_is_exclusive_and_names_its_holder(disk, path):
    lock = disk.lock(path)
    assert disk.read(path) == b"%d\n" % os.getpid()
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    lock.release()
    lock.release()
    disk.lock(path).release()


def test_space_and_boot(disk, tmp_path):
    assert 0 < disk.free_bytes(str(tmp_path)) <= disk.total_bytes(str(tmp_path))
    assert disk.boot_id() == disk.boot_id()
