"""A task and its rows, against a broker; and what brokers may refuse, from a scripted one."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tailrace.client.admin import Admin
from tailrace.client.lanes import ANONYMOUS
from tailrace.client.transactions.admin import TransactionAdmin
from tailrace.model.errors import ErrorCode
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.kafka import parse_kafka_settings
from tailrace.spark.options.write import WriteOptions
from tailrace.spark.sink.exactly_once.decision import ExactlyOnceError, Report
from tailrace.spark.sink.exactly_once.driver import Driver
from tailrace.spark.sink.exactly_once.names import Names
from tailrace.spark.sink.exactly_once.settings import ExactlyOnceSettings
from tailrace.spark.sink.exactly_once.task import Task, TaskTransaction, write_part
from tailrace.spark.sink.task import write_rows
from tailrace.testing import Broker
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


def test_rows_are_written_once_counted_always_and_aborted_if_they_fail(tailrace_broker: Broker):
    options = WriteOptions.parse({"kafka.bootstrap.servers": tailrace_broker.bootstrap, "topic": "rows-of-a-task"})
    settings = ExactlyOnceSettings()

    def batches(*, fails: bool = False) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": pa.array([], pa.string())})
        yield pa.record_batch({"value": ["a", "b"]})
        yield pa.record_batch({"value": ["c"]})
        if fails:
            raise ZeroDivisionError

    with BlockingCluster(parse_kafka_settings({"kafka.bootstrap.servers": tailrace_broker.bootstrap})) as blocking:
        blocking.run(Admin(blocking.cluster).create_topic("rows-of-a-task", partition_count=1))

        def write(rows: Iterator[pa.RecordBatch]) -> Report:
            return write_part(
                rows, blocking, settings, TASK, lambda rows, *rest: write_rows(rows, rest[0], options, rest[1])
            )

        def open_transactions() -> int:
            # Other tests of this broker have transactions too.
            ours = Names(settings.prefix, TASK.scope).part(TASK.index)
            found = blocking.run(TransactionAdmin(blocking.cluster).transactions(states=["Ongoing"], pattern=ours))
            return len(found)

        def fenced_in_between() -> Iterator[pa.RecordBatch]:
            yield from batches()
            another = TaskTransaction(blocking.cluster, settings, TASK)
            blocking.run(another.begin())
            blocking.run(another.give_up())

        nothing = write(iter([pa.record_batch({"value": pa.array([], pa.string())})]))
        assert (nothing.part.identity, nothing.part.fingerprint.rows) == (ANONYMOUS, 0)
        with pytest.raises(ZeroDivisionError):
            write(batches(fails=True))
        with pytest.raises(ExactlyOnceError, match=r"longer than 900000 ms .* or another attempt"):
            write(fenced_in_between())
        assert open_transactions() == 0
        first = write(batches())
        assert first.has_written
        assert first.part.fingerprint.rows == 3
        assert open_transactions() == 1
        blocking.run(Driver(blocking.cluster, settings, scope=TASK.scope, run="r").commit(TASK.batch, [first]))
        second = write(batches())
        assert not second.has_written
        assert second.part.fingerprint == first.part.fingerprint
        assert open_transactions() == 0
