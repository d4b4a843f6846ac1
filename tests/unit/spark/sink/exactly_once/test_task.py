"""What brokers may refuse, from a scripted one."""

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.spark.sink.exactly_once.decision import ExactlyOnceError
from tailrace.spark.sink.exactly_once.settings import ExactlyOnceSettings
from tailrace.spark.sink.exactly_once.task import Task, TaskTransaction
from tailrace.wire.apis.transactions import InitProducerIdRequest
from tests.unit.client.transactions.coordinating_peer import CoordinatingPeer

TASK = Task("query", batch=3, index=0)


async def test_brokers_where_a_commit_cannot_be_repeated_are_refused():
    async with CoordinatingPeer(transaction_version=1) as peer:
        cluster = peer.cluster()
        transaction = TaskTransaction(cluster, ExactlyOnceSettings(), TASK)
        with pytest.raises(ExactlyOnceError, match=r"transaction\.version 2"):
            await transaction.begin()
        await transaction.give_up()
        cluster.close()


async def test_a_timeout_that_brokers_do_not_take_is_named():
    async with CoordinatingPeer() as peer:
        peer.plan = {InitProducerIdRequest: [ErrorCode.INVALID_TRANSACTION_TIMEOUT]}
        cluster = peer.cluster()
        transaction = TaskTransaction(cluster, ExactlyOnceSettings(timeout_ms=5), TASK)
        with pytest.raises(ExactlyOnceError, match=r"transaction\.timeout\.ms=5.*transaction\.max\.timeout\.ms"):
            await transaction.begin()
        await transaction.give_up()
        cluster.close()
