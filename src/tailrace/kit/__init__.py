"""The client kit: what applications on Tailrace, or on any Kafka, are made of.

    async with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        await producer.produce("orders", {"mill": "wheel"}, key="ann")

    async with Consumer({...}, topics=["orders"], values=Json()) as consumer:
        async for message in consumer:
            print(message.value)

`tailrace.kit.sync` has the same without asyncio, `tailrace.kit.serdes.registry` values with schemas of a registry. A
client of brokers like any other: it knows nothing of what a broker of ours is made of.
"""

from tailrace.client.admin import BrokerEntry, CreatedTopic
from tailrace.client.groups.admin import DescribedGroup, ListedGroup
from tailrace.client.lanes import UnknownOutcomeError
from tailrace.client.metadata import TopicMetadata
from tailrace.client.transactions.errors import AbortableError, FencedError, OutcomeUnknownError, TransactionError
from tailrace.kit.admin import Admin
from tailrace.kit.consumer import BEGINNING, END, Consumer
from tailrace.kit.messages import (
    Delivered,
    DeliveryReport,
    Headers,
    Message,
    OffsetAndMetadata,
    Outgoing,
    TopicPartition,
)
from tailrace.kit.options import Options
from tailrace.kit.partitioners import Partitioner, RoundRobin, murmur2
from tailrace.kit.producer import Producer
from tailrace.kit.serdes import Bytes, ByType, DeserializationError, Json, Serde, SerializationError, Text
from tailrace.model.errors import ErrorCode, KafkaError

__all__ = [
    "BEGINNING",
    "END",
    "AbortableError",
    "Admin",
    "BrokerEntry",
    "ByType",
    "Bytes",
    "Consumer",
    "CreatedTopic",
    "Delivered",
    "DeliveryReport",
    "DescribedGroup",
    "DeserializationError",
    "ErrorCode",
    "FencedError",
    "Headers",
    "Json",
    "KafkaError",
    "ListedGroup",
    "Message",
    "OffsetAndMetadata",
    "Options",
    "OutcomeUnknownError",
    "Outgoing",
    "Partitioner",
    "Producer",
    "RoundRobin",
    "Serde",
    "SerializationError",
    "Text",
    "TopicMetadata",
    "TopicPartition",
    "TransactionError",
    "UnknownOutcomeError",
    "murmur2",
]
