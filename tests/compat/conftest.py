"""One broker for all clients: the one at TAILRACE_COMPAT_BOOTSTRAP, else a fresh one of our own."""

import itertools
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.parts import need_jars, need_program

from .clients import DEADLINE_S, Client
from .clients.aio import Aiokafka
from .clients.confluent import Confluent
from .clients.pure import KafkaPython

CLIENTS: tuple[Client, ...] = (Confluent(), Aiokafka(), KafkaPython())

# One or two seconds of start, and no more memory than it needs: several run on two cores.
JAVA = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
TOOLS_DEADLINE_S = 240.0

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
    """Create a topic of its own for the caller: create_topic(partitions=1, **{"setting.name": "value"}).

    A folder with a `bootstrap` of its own needs an `admin` and a `create_topic` of its own, too: these here are kept
    for the whole session, with whichever broker was first.
    """
    return topic_maker(admin, fresh_name)


def topic_maker(admin: AdminClient, fresh_name: Callable[[], str]) -> Callable[..., str]:
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
    """The jars of Apache Kafka's client and tools."""
    return maven_jars("tests/compat/java/pom.xml")


def maven_jars(pom: str) -> str:
    """A class path of what a pom names, for javac and java."""
    need_program("javac")
    return f"{need_jars(pom)}/*"


@pytest.fixture(scope="session")
def compile_java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """compile_java("ClientCheck") gives the command that runs a class of the java folder, in a small JVM; with the
    newest client, or that of another class path."""

    def compile_class(name: str, class_path: str | None = None) -> list[str]:
        class_path = class_path or request.getfixturevalue("kafka_class_path")
        classes = tmp_path_factory.mktemp(name)
        source = Path(__file__).parent / "java" / f"{name}.java"
        command = ["javac", "-cp", class_path, "-d", classes, source]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return [*JAVA, "-cp", f"{class_path}:{classes}", name]

    return compile_class


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that writes a record to a secured listener and reads it again; `go/main.go` says how it is asked."""
    need_program("go")
    built = str(tmp_path_factory.mktemp("go") / "secured")
    # Go fetches its modules and compiles them, the first time.
    command = ["go", "build", "-o", built, "."]
    subprocess.run(command, cwd=Path(__file__).parent / "go", check=True, capture_output=True, timeout=300)
    return built


@pytest.fixture(scope="module")
def kafka_tool(compile_java: Callable[[str], list[str]]) -> Iterator[Callable[..., str]]:
    """kafka_tool("TopicCommand", "--list", ...) runs one of Apache Kafka's commands, of the package of tools unless it
    is named in full (kafka.admin.ConfigCommand), and gives what it printed. All of a module run in one JVM. A command
    is expected to succeed, unless told otherwise: kafka_tool(..., fails=True)."""
    command = compile_java("ToolRunner")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        timer = threading.Timer(TOOLS_DEADLINE_S, runner.kill)
        timer.start()
        assert runner.stdin is not None
        assert runner.stdout is not None

        def run(tool: str, *arguments: str, fails: bool = False) -> str:
            name = tool if tool.startswith("kafka.") else f"org.apache.kafka.tools.{tool}"
            runner.stdin.write(json.dumps([name, *arguments]) + "\n")
            runner.stdin.flush()
            told = json.loads(runner.stdout.readline())
            assert (told["code"] != 0) == fails, f"{told['out']}{told['err']}"
            return told["out"] + (told["err"] if fails else "")

        try:
            yield run
        finally:
            timer.cancel()
            runner.kill()


@pytest.fixture(scope="session")
def go_queue(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program of go/queue."""
    program = str(tmp_path_factory.mktemp("go") / "queue")
    folder = Path(__file__).parent / "go"
    subprocess.run(["go", "build", "-o", program, "./queue"], cwd=folder, check=True, capture_output=True, timeout=300)
    return program
