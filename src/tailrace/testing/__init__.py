"""What users import in their own tests: a real broker that is ready at once and leaves nothing behind.

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

    with Cluster(brokers=3) as cluster:
        cluster.kill(2)

pytest finds the fixtures of `tailrace.testing.plugin` by itself. Our own tests use the same kit.
"""

from typing import TYPE_CHECKING, Any

from tailrace.testing.broker import Broker
from tailrace.testing.child import BrokerFailedError
from tailrace.testing.cluster import LOW_LATENCY, Cluster

if TYPE_CHECKING:
    from tailrace.kit.clocks import MovableClock

__all__ = ["LOW_LATENCY", "Broker", "BrokerFailedError", "Cluster", "MovableClock"]


def __getattr__(name: str) -> Any:
    """The clock brings the client along, which not every pytest run of every user is to load."""
    if name == "MovableClock":
        from tailrace.kit.clocks import MovableClock

        return MovableClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
