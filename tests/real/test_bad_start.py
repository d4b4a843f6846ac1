"""A broker that cannot start says what is wrong and what to do, exits with 1, and changes nothing."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.testing import Broker

from .raw import RawClient, batch


def test_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = _refusal("--port", str(port))
    assert f"127.0.0.1:{port}" in error
    assert "in use" in error
    assert "--port" in error


def test_address_of_another_machine():
    assert "203.0.113.1" in _refusal("--host", "203.0.113.1", "--port", "0")


def test_locked_data_folder(tmp_path: Path):
    with Broker(data=tmp_path) as broker:
        error = _refusal("--port", "0", "--data", str(tmp_path))
        assert str(tmp_path) in error
        assert "in use by another" in error
        with RawClient(broker.bootstrap) as client:
            assert client.is_served()


def test_data_folder_of_another_cluster(tmp_path: Path):
    with Broker(data=tmp_path):
        pass
    before = _content(tmp_path)
    error = _refusal("--port", "0", "--data", str(tmp_path), "--set", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA")
    assert str(tmp_path) in error
    assert "cluster" in error
    assert "AAAAAAAAAAAAAAAAAAAAAA" in error
    assert _content(tmp_path) == before


def test_data_folder_of_another_node(tmp_path: Path):
    with Broker(data=tmp_path):
        pass
    error = _refusal("--port", "0", "--data", str(tmp_path), "--set", "node.id=7")
    assert str(tmp_path) in error
    assert "node.id" in error


def test_data_folder_that_is_a_file(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("not a folder")
    error = _refusal("--port", "0", "--data", str(file))
    assert str(file) in error
    assert file.read_text() == "not a folder"


def test_data_folder_that_cannot_be_written():
    """Nobody, not even root, can make a folder there."""
    error = _refusal("--port", "0", "--data", "/proc/tailrace")
    assert "/proc/tailrace" in error


@pytest.fixture
def read_only_folder(tmp_path: Path) -> Iterator[Path]:
    """Root may write to any folder, but not to a file system that was mounted to be read."""
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        yield tmp_path
        tmp_path.chmod(0o700)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tailrace-test", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("root without the right to mount: nothing is read-only")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_read_only_data_folder(read_only_folder: Path):
    error = _refusal("--port", "0", "--data", str(read_only_folder))
    assert str(read_only_folder) in error
    assert "ead-only" in error or "ermission" in error


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("no.such.setting=1", "no.such.setting"),
        ("log.segment.bytes=large", "log.segment.bytes"),
        ("log.segment.bytes=1", "log.segment.bytes"),
        ("listeners=nonsense", "listeners"),
        ("just-a-word", "KEY=VALUE"),
    ],
)
def test_bad_setting(setting: str, told: str):
    assert told in _refusal("--port", "0", "--set", setting)


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_port_that_cannot_be(port: str):
    assert f"--port {port}" in _refusal("--port", port)


def test_data_survives_a_refused_start(tmp_path: Path):
    with Broker(data=tmp_path) as broker, RawClient(broker.bootstrap) as client:
        assert client.create_topic("kept") == 0
        assert client.produce("kept", batch(b"value")).error == 0
        stored = client.fetch("kept")
        _refusal("--port", "0", "--data", str(tmp_path))
        broker.stop()
        _refusal("--port", "0", "--data", str(tmp_path), "--set", "node.id=2")
        broker.start()
        with RawClient(broker.bootstrap) as again:
            assert again.fetch("kept") == stored


def _refusal(*words: str) -> str:
    """What `tailrace up` says on stderr when it refuses to start."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "up", "--log-level", "error", *words],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert done.stderr.startswith("tailrace: ")
    assert "Traceback" not in done.stderr
    return done.stderr


def _content(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"
    }
