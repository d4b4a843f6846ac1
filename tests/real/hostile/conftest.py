"""A broker of the hostile tests' own, and a healthy client that notices how long others make it wait."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tailrace.testing import Broker
from tests.real.raw import RawClient, batch

# A healthy client's request takes a fraction of a millisecond; what it may take beside an attack, on a busy machine.
PATIENCE_S = 5.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """It must survive the whole module, without a trace of a bug in its log. All APIs are served."""
    with Broker({"client.telemetry.receivers": "metrics"}) as broker:
        yield broker
        log = broker.log()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :]


@contextmanager
def healthy_client(broker: Broker) -> Iterator[None]:
    """Produces and reads as long as the block lasts; fails it if one request took longer than it may."""
    is_over = threading.Event()
    waits: list[float] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with RawClient(broker.bootstrap) as client:
                while not is_over.is_set():
                    started = time.monotonic()
                    assert client.produce("healthy", batch(b"value")).error == 0
                    assert client.fetch("healthy")[0] == 0
                    waits.append(time.monotonic() - started)
                    is_over.wait(0.005)
        except BaseException as failure:
            failures.append(failure)

    with RawClient(broker.bootstrap) as client:
        client.create_topic("healthy")
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        # A block may be shorter than the first request.
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not waits and not failures and time.monotonic() < deadline:
            time.sleep(0.005)
        is_over.set()
        thread.join()
    assert not failures, failures
    assert waits, "no request was answered"
    assert max(waits) < PATIENCE_S


@pytest.fixture
def healthy(broker: Broker) -> Iterator[None]:
    with healthy_client(broker):
        yield


@pytest.fixture
def memory_bytes(broker: Broker) -> Callable[[], int]:
    """What the broker has of its own, without what it shares with the page cache."""

    def measure() -> int:
        with open(f"/proc/{broker.process_id}/status") as status:
            own = next(line for line in status if line.startswith("RssAnon"))
        return int(own.split()[1]) * 1024

    return measure
