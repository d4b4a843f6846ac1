"""One broker for all clients: the one at TAILRACE_COMPAT_BOOTSTRAP, else a fresh one of our own."""

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from .clients import DEADLINE_S, Client
from .clients.aio import Aiokafka
from .clients.confluent import Confluent
from .clients.pure import KafkaPython

CLIENTS: tuple[Client, ...] = (Confluent(), Aiokafka(), KafkaPython())

_serial = itertools.count()


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """The address of the broker under test."""
    elsewhere = os.environ.get("TAILRACE_COMPAT_BOOTSTRAP")
    if elsewhere:
        yield elsewhere
        return
    from tailrace.testing import Broker

    with Broker() as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """librdkafka's admin client, to prepare topics with."""
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="session")
def fresh_name() -> Callable[[], str]:
    """Topic names that no other test uses, on this broker or on one that outlives the run."""
    return lambda: f"compat-{os.getpid()}-{next(_serial)}"


@pytest.fixture(scope="session")
def create_topic(admin: AdminClient, fresh_name: Callable[[], str]) -> Callable[..., str]:
    """Create a topic of its own for the caller: create_topic(partitions=1, **{"setting.name": "value"})."""

    def create(partitions: int = 1, **settings: str) -> str:
        name = fresh_name()
        (created,) = admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values()
        created.result(DEADLINE_S)
        return name

    return create


@pytest.fixture
def topic(create_topic: Callable[..., str]) -> str:
    """A topic of one partition with the default settings."""
    return create_topic()


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Each library in turn."""
    return request.param


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    """The jars of Apache Kafka's client and tools, brought by Maven into a folder that git ignores, once."""
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        pytest.skip("Maven and a JDK are not installed")
    pom = Path(__file__).parent / "java" / "pom.xml"
    jars = Path(__file__).parents[2] / ".cache" / "compat-java"
    installed = jars / "pom.xml"
    if not installed.exists() or installed.read_bytes() != pom.read_bytes():
        shutil.rmtree(jars, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            pytest.skip(f"Maven could not bring Apache Kafka: {done.stdout.strip()[-200:]}")
        shutil.copy(pom, installed)
    return f"{jars}/*"
