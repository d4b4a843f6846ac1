"""A server of S3 that checks signatures: a broker's whole life on it, and what is said where it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tailrace.testing import Broker
from tests.parts import need_jars, need_program
from tests.real.tier.topics import DEADLINE_S, QUICK, create, fill, local_start, read, wait, wait_cold
from tests.stores import Way, options, s3proxy, settings

pytestmark = pytest.mark.long

COUNT = 2000


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_program("java")
    with s3proxy(need_jars("tests/compat/java/tier/pom.xml"), tmp_path_factory.mktemp("s3proxy")) as address:
        yield address


def test_a_topic_goes_there_comes_back_and_leaves_nothing(endpoint: str, tmp_path: Path) -> None:
    soon = QUICK | {
        "remote.log.deletion.delay.ms": "3000",
        "remote.log.storage.upload.timeout.ms": "2000",
        "remote.log.sweep.interval.ms": "2000",
    }
    url = "s3://tier/life"
    with Way(endpoint) as way, Broker(settings=soon | settings(way.address, url), data=tmp_path / "data") as broker:
        create(broker.bootstrap, replicas=1)
        way.error_share, way.cut_share = 0.1, 0.1
        fill(broker.bootstrap, range(COUNT))
        folder = tmp_path / "data" / "t-0"
        wait_cold(folder, COUNT * 9 // 10)
        assert read(broker.bootstrap, COUNT) == list(range(COUNT))
        assert way.refused + way.cut > 0
        way.heal()
        verified = tailrace("tier", "verify", *given(endpoint), url)
        assert verified.returncode == 0, verified.stderr
        assert "are whole" in verified.stderr
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["t"])["t"].result(DEADLINE_S)
        wait(
            lambda: tailrace("tier", "list", "--json", *given(endpoint), url).stdout == "",
            "nothing is left of the topic",
        )


def test_a_store_that_is_away_is_waited_for(endpoint: str, tmp_path: Path) -> None:
    """Produce goes on, and nothing leaves the disk; once it is back everything is copied."""
    with (
        Way(endpoint) as way,
        Broker(settings=QUICK | settings(way.address, "s3://tier/away"), data=tmp_path) as broker,
    ):
        way.is_away = True
        create(broker.bootstrap, replicas=1)
        fill(broker.bootstrap, range(COUNT))
        assert local_start(tmp_path / "t-0") == 0
        assert read(broker.bootstrap, COUNT) == list(range(COUNT)), "what is here is read"
        way.is_away = False
        wait_cold(tmp_path / "t-0", COUNT * 9 // 10)
        assert read(broker.bootstrap, COUNT) == list(range(COUNT))


REFUSALS: dict[str, tuple[dict[str, str], str, str]] = {
    "a wrong secret": ({"rsm.config.secret_access_key": "wrong"}, "s3://tier/x", "Check the credentials"),
    "no such bucket": ({}, "s3://nowhere/x", "The bucket does not exist: make it"),
    "an unknown scheme": ({}, "ftp://tier/x", "is no address of a store"),
    "an unknown setting": ({"rsm.config.nonsense": "1"}, "s3://tier/x", "rsm.config.nonsense is no setting"),
    "another cluster's": ({}, "s3://tier/taken", "give it a bucket or a prefix of its own"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_first_start_and_format_end_with_what_to_do(endpoint: str, tmp_path: Path, what: str) -> None:
    changed, url, text = REFUSALS[what]
    if what == "another cluster's":
        with Broker(settings=settings(endpoint, url)):
            pass
    chosen = settings(endpoint, url) | changed
    for words in (up(chosen, tmp_path / "up"), format_(chosen, tmp_path)):
        done = tailrace(*words)
        assert done.returncode != 0
        assert text in done.stderr, done.stderr
        assert chosen["rsm.config.secret_access_key"] not in done.stderr + done.stdout
        assert "Traceback" not in done.stderr


def test_a_first_start_does_not_wait_for_a_store_that_is_silent(tmp_path: Path, unused_tcp_port: int) -> None:
    with Broker(settings=QUICK | settings(f"http://127.0.0.1:{unused_tcp_port}"), data=tmp_path) as broker:
        create(broker.bootstrap, replicas=1)
        fill(broker.bootstrap, range(100))
        assert read(broker.bootstrap, 100) == list(range(100))


def up(chosen: dict[str, str], folder: Path) -> list[str]:
    words = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    return ["up", "--data", os.fspath(folder), "--port", "0", *words]


def format_(chosen: dict[str, str], folder: Path) -> list[str]:
    config = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": os.fspath(folder / "formatted"),
    } | chosen
    path = folder / "node.toml"
    path.write_text("".join(f'"{name}" = "{value}"\n' for name, value in config.items()))
    return ["format", "--config", os.fspath(path), "--standalone"]


def given(endpoint: str) -> list[str]:
    return [word for name, value in options(endpoint).items() for word in ("--set", f"{name}={value}")]


def tailrace(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
