"""What users import in their own tests: a real broker that is ready at once and leaves nothing behind.

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

pytest finds the fixtures of `tailrace.testing.plugin` by itself. Our own tests use the same kit.
"""

from tailrace.testing.broker import Broker
from tailrace.testing.child import BrokerFailedError

__all__ = ["Broker", "BrokerFailedError"]
