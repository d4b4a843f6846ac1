"""The tasks of one process share a producer id, each under an epoch of its own."""

import os

import pytest

from tailrace.client.lanes import ACKS_NONE, ANONYMOUS, ProducerIdentity, ProducerOptions
from tailrace.client.metadata import Cluster
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.sink import author
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.client.peer import Peer

PARTITION = TopicPartition("t", PartitionIndex(0))


class IdGiver(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.scripts[InitProducerIdRequest] = self._identify

    def _identify(self, _request: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=len(self.received(InitProducerIdRequest)), producer_epoch=0)


async def identify(cluster: Cluster, **options: object) -> ProducerIdentity:
    task = author.WorkerAuthor(cluster, ProducerOptions(**options))
    identity = await task.identify(PARTITION, has_failed=False)
    assert await task.identify(PARTITION, has_failed=False) == identity
    return identity


async def test_each_task_has_the_next_epoch_until_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(author, "_last_used", {})
    async with IdGiver() as broker:
        cluster = broker.cluster()
        cluster.cluster_id = "here"
        assert [await identify(cluster) for _ in range(3)] == [(1, 0), (1, 1), (1, 2)]

        author._last_used[os.getpid(), "here"] = ProducerIdentity(1, 2**15 - 1)
        assert await identify(cluster) == (2, 0)
        assert await identify(cluster) == (2, 1)


async def test_neither_another_cluster_nor_a_forked_process_goes_on_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(author, "_last_used", {})
    async with IdGiver() as broker:
        cluster = broker.cluster()
        cluster.cluster_id = "here"
        assert await identify(cluster) == (1, 0)
        cluster.cluster_id = "there"
        assert await identify(cluster) == (2, 0)
        cluster.cluster_id = None
        assert [await identify(cluster) for _ in range(2)] == [(3, 0), (4, 0)]
        cluster.cluster_id = "here"
        process_id = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: process_id + 1)
        assert await identify(cluster) == (5, 0)


async def test_without_idempotence_it_is_nobody() -> None:
    async with IdGiver() as broker:
        assert await identify(broker.cluster(), acks=ACKS_NONE) == ANONYMOUS
