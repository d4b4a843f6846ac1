"""Topics of a test's own, and a bystander who must not notice what others do to the broker."""

import itertools
import resource
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

from .raw import RawClient, batch

_serial = itertools.count()
# For a test with a thousand connections, of which this process holds the other ends.
_FILES = 2000


@pytest.fixture(scope="session")
def admin(tailrace_broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": tailrace_broker.bootstrap})


@pytest.fixture(scope="session")
def create_topic(admin: AdminClient) -> Callable[..., str]:
    """Creates a topic with a name of its own: create_topic(partitions=1, **{"setting.name": "value"})."""

    def create(partitions: int = 1, **settings: str) -> str:
        name = f"topic-{next(_serial)}"
        (created,) = admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values()
        created.result(10)
        return name

    return create


@pytest.fixture
def topic(create_topic: Callable[..., str]) -> str:
    return create_topic()


@pytest.fixture
def client(tailrace_broker: Broker) -> Iterator[RawClient]:
    with RawClient(tailrace_broker.bootstrap) as client:
        yield client


@pytest.fixture
def bystander(tailrace_broker: Broker, create_topic: Callable[..., str]) -> Iterator[None]:
    """Another connection and another topic: after the test both are as they were, and go on."""
    topic = create_topic()
    with RawClient(tailrace_broker.bootstrap) as other:
        assert other.produce(topic, batch(b"before")).error == 0
        _, stored = other.fetch(topic)
        yield
        assert other.fetch(topic) == (0, stored)
        assert other.produce(topic, batch(b"after"))[:2] == (0, 1)


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _FILES:
        pytest.skip(f"this user may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
