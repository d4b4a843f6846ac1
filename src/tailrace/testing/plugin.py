"""pytest fixtures, found by pytest itself wherever tailrace is installed.

Loaded in every pytest run of every user, whether or not it needs a broker: so nothing of the broker is imported here,
and no process is started before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tailrace.testing import Broker, Cluster


@pytest.fixture(scope="session")
def tailrace_broker() -> Iterator[Broker]:
    """One broker for the whole run, shared by all tests: let each use topics of its own."""
    from tailrace.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def fresh_tailrace_broker() -> Iterator[Broker]:
    """A broker of this test's own, to fill, kill or pause; about 0.2 s a test."""
    from tailrace.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def fresh_tailrace_cluster() -> Iterator[Cluster]:
    """Three brokers and three controllers of this test's own, to kill or pause; about a second a test."""
    from tailrace.testing import Cluster

    with Cluster(brokers=3) as cluster:
        yield cluster
