"""One Spark session and one broker for all tests, with topics of each test's own."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from bench.maven import JarsNotFoundError, bring_jars
from tailrace.spark import session
from tailrace.testing import Broker
from tests.parts import POMS, ROOT, need_jars, need_java_for_spark, need_program

OFFICIAL_POM = "tests/spark/java/pom.xml"
DEADLINE_S = 30.0
START_TIMEOUT_S = 240.0

# A stateful micro-batch of 0.35 s instead of 7: two cores, few rows.
QUICK_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.stateStore.maintenanceInterval": "10min",
    "spark.sql.warehouse.dir": "",  # each run has its own, see below
}

# Where the tests run instead of threads of this process: see test_local_cluster.py.
MASTER_VARIABLE = "TAILRACE_TEST_MASTER"

_serial = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def own_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pipelines of tests are not among those of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAILRACE_PIPELINES", str(tmp_path_factory.mktemp("runs")))
        yield


@pytest.fixture(scope="session")
def tailrace_broker() -> Iterator[Broker]:
    """One that may take as long to start as a JVM beside it lets it."""
    with Broker(start_timeout_s=START_TIMEOUT_S) as broker:
        yield broker


@pytest.fixture(scope="session")
def java_for_spark() -> None:
    """For this process and for those that it starts."""
    need_java_for_spark()


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, java_for_spark: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    settings = QUICK_SETTINGS | {"spark.sql.warehouse.dir": str(warehouse)}
    # A JVM takes jars when it starts, and there is one for all tests.
    if any("kafka_format" in getattr(item, "fixturenames", ()) for item in request.session.items):
        with contextlib.suppress(JarsNotFoundError):
            settings["spark.jars"] = official_jars()
    found = session("tests", master=os.environ.get(MASTER_VARIABLE, "local[2,4]"), settings=settings)
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


def official_jars() -> str:
    """The jars of Spark's own Kafka connector, as spark.jars takes them."""
    folder = bring_jars(ROOT / OFFICIAL_POM, POMS[OFFICIAL_POM])
    return ",".join(map(str, sorted(folder.glob("*.jar"))))


@pytest.fixture(scope="session")
def kafka_format(spark: SparkSession) -> str:
    """The format of Spark's own Kafka connector."""
    need_jars(OFFICIAL_POM)
    return "kafka"


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    """The jars of Apache Kafka's server, which runs on the machine's own Java."""
    need_program("java")
    return f"{need_jars('tests/compat/java/pom.xml')}/*"


@pytest.fixture(scope="session")
def admin(tailrace_broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": tailrace_broker.bootstrap})


@pytest.fixture(scope="session")
def create_topic(admin: AdminClient) -> Callable[..., str]:
    """Creates a topic with a name of its own: create_topic(partitions=1, **{"setting.name": "value"})."""

    def create(partitions: int = 1, **settings: str) -> str:
        name = f"spark-{next(_serial)}"
        (created,) = admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values()
        created.result(DEADLINE_S)
        return name

    return create


Row = Mapping[str, object]


@pytest.fixture(scope="session")
def produce(tailrace_broker: Broker) -> Callable[[str, Iterable[Row]], None]:
    """Writes rows such as {"value": b"..", "key": b"..", "partition": 0, "headers": [("a", b"1")]} by librdkafka."""
    producer = Producer({"bootstrap.servers": tailrace_broker.bootstrap, "linger.ms": 2})

    def write(topic: str, rows: Iterable[Row]) -> None:
        for row in rows:
            producer.produce(topic, **row)
        assert producer.flush(DEADLINE_S) == 0

    return write


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
