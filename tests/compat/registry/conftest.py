"""One broker with a registry beside it, for all clients of this folder."""

from collections.abc import Iterator

import pytest

from tailrace.testing import Broker


@pytest.fixture(scope="package")
def registered_broker() -> Iterator[Broker]:
    with Broker(registry=True, start_timeout_s=60) as broker:
        yield broker
