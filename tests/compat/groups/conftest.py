"""A broker whose groups settle within tenths of a second, or the one at TAILRACE_COMPAT_BOOTSTRAP."""

import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import topic_maker

# The defaults are for networks and users: three seconds until a group begins, six until a member is missed.
QUICK = {
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 100,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 4000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
}


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    elsewhere = os.environ.get("TAILRACE_COMPAT_BOOTSTRAP")
    if elsewhere:
        yield elsewhere
        return
    from tailrace.testing import Broker

    with Broker(QUICK) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="session")
def create_topic(admin: AdminClient, fresh_name: Callable[[], str]) -> Callable[..., str]:
    return topic_maker(admin, fresh_name)
