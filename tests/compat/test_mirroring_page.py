"""docs/mirroring.md, word for word: the drill, the failover and the migration are what runs here."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "mirroring.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SOURCE = "127.0.0.1:19092"
DEADLINE_S = 30.0


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker() as source, Broker() as here:
        yield source, here


def blocks(heading: str) -> list[str]:
    found = BLOCK.findall(PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0])
    assert found, f"there is nothing to run under {heading}"
    return found


def shell(script: str, broker: Broker, source: Broker) -> str:
    text = script.replace(SOURCE, source.bootstrap)
    text = re.sub(r"(tailrace (?:mirror \w+|topic \w+|produce|consume))", rf"\1 --bootstrap {broker.bootstrap}", text)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    words = ["bash", "-c", "set -e\n" + text]
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write(broker: Broker, topic: str, count: int) -> None:
    shell(f"seq {count} | tailrace produce {topic}", broker, broker)


def until_mirrored(here: Broker, source: Broker, link: str, topic: str, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        lines = [line.split("\t") for line in shell(f"tailrace mirror describe {link}", here, source).splitlines()]
        if sum(int(line[4]) for line in lines if line[:1] == [topic]) == count:
            return
        assert time.monotonic() < deadline, lines
        time.sleep(0.1)


def test_the_drill_and_the_failover(brokers: tuple[Broker, Broker]):
    source, here = brokers
    write(source, "canary", 5)
    write(source, "orders", 20)
    shell(f"tailrace mirror create dc1 --source {SOURCE} --set sync.interval.ms=300", here, source)
    until_mirrored(here, source, "dc1", "orders", 20)
    until_mirrored(here, source, "dc1", "canary", 5)
    look, canary = blocks("The drill")
    told = shell(look, here, source)
    assert "canary\t0\t4\t" in told
    shell(canary, here, source)
    until_mirrored(here, source, "dc1", "canary", 5)
    source.kill()
    (failover,) = blocks("Failover")
    assert "orders\t0\t19\t" in shell(failover, here, source)
    write(here, "orders", 1)
    source.start()
    write(source, "orders", 3)
    (back,) = blocks("Going back")
    shell(back, here, source)
    until_mirrored(source, here, "dc1-reversed", "orders", 22)  # With the barrier.
    assert shell("tailrace consume orders.cut --until-end", source, here).splitlines() == ["1", "2", "3"]


def test_the_migration(brokers: tuple[Broker, Broker]):
    source, here = brokers
    write(source, "orders", 20)
    create, promote, delete = blocks("Migration")
    shell(create, here, source)
    until_mirrored(here, source, "move", "orders", 20)
    shell(promote, here, source)
    write(here, "orders", 5)
    shell(delete, here, source)
