"""Encoded batches on their way to the brokers: all partitions at once, in order within each.

Up to five batches of a partition are under way together, as our own producer has them (`client.writing.flights`). A
batch that the topic finds too large is sent in halves, as Kafka's own producer does.

`send` returns when everything is acknowledged. Nothing is under way between two calls, so it does not matter for how
long the caller, who waits for Spark's next rows, does not run the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from tailrace.client.lanes import ACKS_NONE, SEQUENCE_MODULUS, Author, ProduceResult, ProducerOptions, produce_batch
from tailrace.client.metadata import Cluster
from tailrace.client.writing.flights import Flight, Flights
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Bytes
from tailrace.spark.arrow.encode import EncodedBatch


class Sender:
    """Batches are written in the name of the author, whose sequences this sender alone counts."""

    def __init__(self, cluster: Cluster, options: ProducerOptions, author: Author) -> None:
        self._cluster = cluster
        self._options = options
        self._author = author
        self._flights: dict[TopicPartition, Flights[EncodedBatch]] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Where something was written, or may have been."""
        return frozenset(self._flights)

    async def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Until all are acknowledged. Raises KafkaError if one cannot be delivered within `delivery_timeout_ms`; what
        became of the others is not known then, and this sender must not be used again."""
        by_partition: dict[TopicPartition, list[EncodedBatch]] = {}
        for batch in batches:
            by_partition.setdefault(batch.partition, []).append(batch)
        deliveries = [asyncio.create_task(self._deliver(*each)) for each in by_partition.items()]
        try:
            await asyncio.gather(*deliveries)
        except KafkaError as error:
            self._author.note_failure(error)
            raise
        finally:
            for delivery in deliveries:
                delivery.cancel()
            await asyncio.gather(*deliveries, return_exceptions=True)

    async def _deliver(self, partition: TopicPartition, batches: Sequence[EncodedBatch]) -> None:
        waiting = deque(Flight(batch) for batch in batches)
        flights = self._flights_of(partition)
        try:
            while waiting or flights.under_way:
                while waiting and flights.has_room:
                    await flights.begin(waiting.popleft())
                await asyncio.wait([flights.under_way[0].answer])
                flights.take_acknowledged()
                if flights.is_stuck:
                    await flights.take_others()
                    if _is_too_large(flights.under_way[0]):
                        first, *others = flights.cancel()
                        waiting.extendleft(reversed([*_halves(first), *others]))
                    else:
                        await flights.try_again()
        finally:
            flights.cancel()

    def _flights_of(self, partition: TopicPartition) -> Flights[EncodedBatch]:
        flights = self._flights.get(partition)
        if flights is None:
            produce = partial(self._produce, partition)
            flights = Flights(self._cluster, self._options, self._author, partition, produce=produce)
            self._flights[partition] = flights
        return flights

    async def _produce(self, partition: TopicPartition, batch: Bytes) -> ProduceResult:
        result = await produce_batch(self._cluster, self._options, self._author, partition, batch)
        if self._options.acks == ACKS_NONE:
            # The connection must not be closed on what was never sent. Answers come in the order of requests: once
            # there is one to a later request, the batch has arrived.
            leader = await self._cluster.leader_of(partition)
            await (await self._cluster.connection_to(leader.leader_id)).negotiate()
        return result


def _is_too_large(flight: Flight[EncodedBatch]) -> bool:
    return flight.failure().code is ErrorCode.MESSAGE_TOO_LARGE and flight.batch.record_count > 1


def _halves(flight: Flight[EncodedBatch]) -> tuple[Flight[EncodedBatch], Flight[EncodedBatch]]:
    """For a topic that takes only smaller batches. Together they have the sequence numbers of the whole."""
    assert flight.sequence is not None, "it was sent before"
    first, second = flight.batch.split()
    return (
        Flight(first, flight.sequence),
        Flight(second, (flight.sequence + first.record_count) % SEQUENCE_MODULUS),
    )
