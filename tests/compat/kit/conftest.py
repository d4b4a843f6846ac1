"""The same tests for our own client and for librdkafka (long), on a broker of ours and on Apache Kafka 4.3 (long)."""

import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tailrace.testing import Broker
from tests.apache_kafka import ApacheKafka
from tests.compat.conftest import topic_maker

# Members hear of each other five seconds apart by default.
_GROUPS = {"group.consumer.heartbeat.interval.ms": "500", "group.consumer.min.heartbeat.interval.ms": "100"}


@pytest.fixture(scope="session")
def apache_kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ApacheKafka(kafka_class_path, tmp_path_factory.mktemp("kit"), settings=_GROUPS) as running:
        yield running.addresses["PLAINTEXT"]


@pytest.fixture(scope="session", params=["tailrace", pytest.param("kafka", marks=pytest.mark.long)])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka":
        yield request.getfixturevalue("apache_kafka")
    elif elsewhere := os.environ.get("TAILRACE_COMPAT_BOOTSTRAP"):
        yield elsewhere
    else:
        with Broker(_GROUPS) as broker:
            yield broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="session")
def create_topic(admin: AdminClient, fresh_name: Callable[[], str]) -> Callable[..., str]:
    return topic_maker(admin, fresh_name)


@pytest.fixture(params=["own", pytest.param("librdkafka", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest, bootstrap: str) -> dict[str, str]:
    """The options that every client of the kit needs, for each engine."""
    engine = "tailrace" if request.param == "own" else request.param
    return {"bootstrap.servers": bootstrap, "engine": engine}
