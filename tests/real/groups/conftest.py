"""A broker with small limits, or the one at TAILRACE_COMPAT_BOOTSTRAP, to compare with another broker."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

from .asker import TIMEOUT_S, Asker

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.max.size": 2,
    "group.consumer.max.size": 3,
    "group.min.session.timeout.ms": 6000,
}

_serial = itertools.count()


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    """It must survive everything, without a trace of a bug in its log."""
    elsewhere = os.environ.get("TAILRACE_COMPAT_BOOTSTRAP")
    if elsewhere:
        yield elsewhere
        return
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap
        log = broker.log()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :]


@pytest.fixture(scope="package")
def topic(bootstrap: str) -> str:
    name = f"groups-{os.getpid()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (created,) = admin.create_topics([NewTopic(name, 2, 1)]).values()
    created.result(TIMEOUT_S)
    return name


@pytest.fixture
def asker(bootstrap: str) -> Iterator[Asker]:
    with Asker(bootstrap) as asker:
        assert asker.find_coordinator("any") == 0
        yield asker


@pytest.fixture
def fresh_group() -> Callable[[], str]:
    """Names that no other test uses, on this broker or on one that outlives the run."""
    return lambda: f"group-{os.getpid()}-{next(_serial)}"


@pytest.fixture
def group(fresh_group: Callable[[], str]) -> str:
    return fresh_group()
