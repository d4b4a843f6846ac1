"""Producing by our own client, in transactions or without."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterable
from contextlib import suppress

from tailrace.client.groups.offsets import GroupMetadata, Offsets
from tailrace.client.lanes import Delivered
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.client.producer import Producer, Sendable
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.kit.engines.port import ProducerEngine
from tailrace.kit.messages import WireHeaders
from tailrace.kit.options import ParsedOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.cluster import open_cluster


class TailraceProducer(ProducerEngine):
    def __init__(self, options: ParsedOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._plain: Producer | None = None
        self._transactional: TransactionalProducer | None = None

    async def start(self) -> None:
        options, config = self._options, self._options.config
        producing = options.producing()
        self._cluster = cluster = open_cluster(
            options.bootstrap, security=options.security, client_id=config.client_id, limits=options.limits()
        )
        if config.transactional_id is None:
            self._plain = Producer(cluster, producing)
            return
        transactional = TransactionalProducer(
            cluster,
            TransactionOptions(
                config.transactional_id,
                timeout_ms=config.transaction_timeout_ms,
                retry_timeout_ms=config.max_block_ms,
                producing=producing,
            ),
        )
        try:
            await cluster.with_retries(transactional.init, timeout_ms=config.max_block_ms)
        except BaseException:
            transactional.close()
            cluster.close()
            raise
        self._transactional = transactional

    async def partition_count(self, topic: str) -> int:
        known = self._started.known_topic(topic) or await self._describe(topic)
        return len(known.partitions)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: WireHeaders,
        partition: int | None,
        timestamp: int | None,
    ) -> Future[Delivered]:
        producer = self._plain or self._in_transaction
        if self._started.known_topic(topic) is None:
            await self._describe(topic)
        return await producer.send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)

    async def send_many(self, topic: str, records: Iterable[Sendable]) -> Future[int]:
        producer = self._plain or self._in_transaction
        if self._started.known_topic(topic) is None:
            await self._describe(topic)
        return await producer.send_many(topic, records)

    async def flush(self, timeout_ms: float) -> int:
        producer = self._producer
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await producer.flush()
        return producer.unacknowledged

    def begin(self) -> None:
        self._in_transaction.begin()

    async def commit(self) -> None:
        await self._in_transaction.commit()

    async def abort(self) -> None:
        await self._in_transaction.abort()

    async def send_offsets(self, offsets: Offsets, group: object) -> None:
        if not isinstance(group, GroupMetadata):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{group!r} is no group metadata of this engine: use the same engine for producer and consumer",
            )
        await self._in_transaction.send_offsets(offsets, group)

    async def close(self) -> None:
        for each in (self._transactional, self._plain, self._cluster):
            if each is not None:
                each.close()

    @property
    def _started(self) -> Cluster:
        assert self._cluster is not None, "the engine was not started"
        return self._cluster

    @property
    def _producer(self) -> Producer:
        producer = self._plain if self._transactional is None else self._transactional.producer
        assert producer is not None, "the engine was not started"
        return producer

    @property
    def _in_transaction(self) -> TransactionalProducer:
        if self._transactional is None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "this producer has no transactions: give it a transactional.id"
            )
        return self._transactional

    async def _describe(self, topic: str) -> TopicMetadata:
        return await self._producer.describe(topic, timeout_ms=self._options.config.max_block_ms)
