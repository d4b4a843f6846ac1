"""The Java client (4.3) leaves no time between transactions: the next one is begun, written and aborted while the
markers of a commit over many partitions are still being written. The producer is not fenced by its own commit, and what
is committed is exact."""

import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Cluster
from tests.compat.clients import DEADLINE_S

RUN_DEADLINE_S = 240.0
PRODUCERS = 8


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[str]:
    # A machine that is busy with other tests does not elect new leaders: this is not about failover.
    with Cluster({"broker.session.timeout.ms": 30_000}, brokers=3) as cluster:
        yield cluster.bootstrap


def run(java: list[str], bootstrap: str, topic: str, *, partitions: int, rounds: int) -> str:
    command = [*java, bootstrap, topic, str(partitions), str(PRODUCERS), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected(partitions: int, rounds: int) -> str:
    count = PRODUCERS * rounds * partitions
    return f"died 0 of {PRODUCERS}\nexact {count} of {count}\n"


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.long)])
def test_on_one_broker(
    bootstrap: str, create_topic: Callable[..., str], compile_java: Callable[..., list[str]], rounds: int
) -> None:
    java = compile_java("AtOnce")
    assert run(java, bootstrap, create_topic(100), partitions=100, rounds=rounds) == expected(100, rounds)


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.long)])
def test_on_three_brokers(three_brokers: str, compile_java: Callable[..., list[str]], rounds: int) -> None:
    java = compile_java("AtOnce")
    topic = f"at-once-{rounds}"
    admin = AdminClient({"bootstrap.servers": three_brokers})
    (created,) = admin.create_topics([NewTopic(topic, 10, 3)]).values()
    created.result(DEADLINE_S)
    assert run(java, three_brokers, topic, partitions=10, rounds=rounds) == expected(10, rounds)
