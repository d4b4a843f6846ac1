"""One flipped byte in the metadata log of a real process, a lost file, a lost identity: refused with the remedy, and no
topic is ever gone in silence."""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.testing import Broker

from .raw import RawClient, batch

TOPICS = ("orders", "payments", "returns")
LOG = "__cluster_metadata-0/00000000000000000000.log"


def _fill(data: Path, *, is_clean: bool) -> None:
    with Broker(data=data) as broker:
        with RawClient(broker.bootstrap) as client:
            for topic in TOPICS:
                assert client.create_topic(topic) == 0
                assert client.produce(topic, batch(b"value")).error == 0
        if is_clean:
            broker.stop()
        else:
            broker.kill()


def _tailrace(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *words], capture_output=True, text=True, timeout=30, check=False
    )


def _refusal(data: Path) -> str:
    done = _tailrace("up", "--log-level", "error", "--port", "0", "--data", str(data))
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def _topics(data: Path) -> set[str]:
    """Those whose record can be read, too."""
    with Broker(data=data) as broker, RawClient(broker.bootstrap) as client:
        return {topic for topic in TOPICS if client.fetch(topic)[0] == 0}


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_flipped_byte_is_refused_and_repaired(tmp_path: Path, is_clean: bool):
    data = tmp_path / "data"
    _fill(data, is_clean=is_clean)
    sound = (data / LOG).read_bytes()
    chance = random.Random(1)
    for position in [len(sound) - 1, *(chance.randrange(21, len(sound)) for _ in range(4))]:
        damaged = bytearray(sound)
        damaged[position] ^= 1 << chance.randrange(8)
        (data / LOG).write_bytes(damaged)
        told = _refusal(data)
        assert str(data / LOG) in told, f"byte {position}"
        assert ", offset " in told
        assert f"tailrace repair --data {data}" in told
        assert (data / ".kafka_cleanshutdown").exists() == is_clean, "nothing has changed"
    (data / LOG).write_bytes(sound)
    assert _topics(data) == set(TOPICS)

    damaged = bytearray((data / LOG).read_bytes())
    position = damaged.rindex(b"returns")
    damaged[position] ^= 1
    (data / LOG).write_bytes(damaged)
    shown = _tailrace("repair", "--data", str(data))
    assert shown.returncode == 0, shown
    assert "offset" in shown.stdout
    assert f"tailrace repair --data {data} --apply" in shown.stdout
    assert bytes(damaged) == (data / LOG).read_bytes()
    done = _tailrace("repair", "--data", str(data), "--apply")
    assert done.returncode == 0, done
    assert _topics(data) == set(TOPICS) - {"returns"}
    assert any(path.name.startswith("returns-0.") for path in data.iterdir()), "its records are kept"


def _lose_file(data: Path) -> None:
    (data / LOG).unlink()


def _lose_folder(data: Path) -> None:
    shutil.rmtree(data / "__cluster_metadata-0")


def _shorten(data: Path) -> None:
    content = (data / LOG).read_bytes()
    (data / LOG).write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("lose", [_lose_file, _lose_folder, _shorten])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_lost_log_is_refused(tmp_path: Path, lose: Callable[[Path], None], is_clean: bool):
    data = tmp_path / "data"
    _fill(data, is_clean=is_clean)
    lose(data)
    told = _refusal(data)
    assert "__cluster_metadata-0" in told
    assert "tailrace repair" in told
    assert not any(path.name.endswith("-stray") for path in data.iterdir()), "no log was set aside"


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_data_without_an_identity_is_refused(tmp_path: Path, is_clean: bool):
    data = tmp_path / "data"
    _fill(data, is_clean=is_clean)
    identity = (data / "meta.properties").read_bytes()
    (data / "meta.properties").unlink()
    assert f"{data} holds data" in _refusal(data)
    assert not (data / "meta.properties").exists()
    (data / "meta.properties").write_bytes(identity)
    assert _topics(data) == set(TOPICS)
