"""A broker whose groups settle within tenths of a second, and the application."""

from collections.abc import Callable, Iterator

import pytest

from tests.apache_kafka import ApacheKafka
from tests.compat.conftest import maven_jars
from tests.compat.streams.application import QUICK


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    from tailrace.testing import Broker

    with Broker(QUICK) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="package")
def apache_kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of Apache Kafka with the same settings."""
    settings = {name: str(value) for name, value in QUICK.items()}
    with ApacheKafka(kafka_class_path, tmp_path_factory.mktemp("kafka"), settings=settings) as kafka:
        yield kafka.bootstrap


@pytest.fixture(scope="session")
def word_count(compile_java: Callable[..., list[str]]) -> list[str]:
    """The command that runs the application."""
    return compile_java("WordCount", maven_jars("tests/compat/java/streams/pom.xml"))
