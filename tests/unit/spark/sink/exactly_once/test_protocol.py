"""The protocol of tasks and drivers against a broker, without Spark: whoever dies wherever, each row is there once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.transactions.admin import TransactionAdmin
from tailrace.client.transactions.errors import FencedError
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.real.ports import real_ports
from tailrace.spark.sink.exactly_once.decision import ExactlyOnceError
from tailrace.spark.sink.exactly_once.names import Names
from tailrace.testing import Broker
from tests.unit.spark.sink.exactly_once.actors import (
    PARTITION_COUNT,
    SETTINGS,
    Query,
    Rows,
    read_committed,
    until_it_dies,
)

FIRST: Rows = [[b"a1", b"a2"], [b"b1"], []]
SECOND: Rows = [[b"c1"], [b"d1", b"d2"], [b"e1"]]
ALL = sorted(value for rows in (*FIRST, *SECOND) for value in rows)
STEPS_MAX = 200


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(in_process=True) as broker:
        yield broker


@pytest.fixture
async def cluster(broker: Broker) -> AsyncIterator[Cluster]:
    cluster = Cluster(real_ports(), parse_bootstrap(broker.bootstrap))
    yield cluster
    cluster.close()


async def begun(cluster: Cluster, name: str = "t", batch_0: Rows = FIRST) -> Query:
    """A query that has written its first batch."""
    await Admin(cluster).create_topic(name, partition_count=PARTITION_COUNT)
    query = Query(name, f"query-{name}", "run 1")
    await query.run_batch(cluster, 0, batch_0)
    return query


def again(query: Query) -> Query:
    return Query(query.topic, query.scope, "run 2", query.settings)


async def time_out(cluster: Cluster, query: Query, *indexes: int) -> None:
    """What a coordinator does with transactions whose time is over: it aborts them, and fences their producer."""
    for index in indexes:
        name = Names(query.settings.prefix, query.scope).part(index)
        producer = TransactionalProducer(cluster, TransactionOptions(name))
        await producer.init()
        producer.close()


async def test_batch_after_batch(cluster: Cluster):
    query = await begun(cluster)
    await query.run_batch(cluster, 1, SECOND)
    await query.run_batch(cluster, 2, [[], []])
    assert await read_committed(cluster, "t") == ALL


# What has happened between the death of a driver and the next run, and the rows that the plan gives then.
ALL_TIMED_OUT = (0, 1, 2)
OTHER_TASKS: Rows = [[b"c1", b"e1"], [b"d2", b"d1"]]


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize("timed_out", [(), ALL_TIMED_OUT, (1,)])
async def test_a_driver_that_dies_at_any_request(
    broker: Broker, cluster: Cluster, timed_out: tuple[int, ...], is_sent: bool
):
    for step in range(1, STEPS_MAX):
        query = await begun(cluster, f"t{step}")
        has_ended = await commit_until_death(broker, cluster, query, step, is_sent=is_sent)
        await time_out(cluster, query, *timed_out)
        await again(query).run_batch(cluster, 1, SECOND)
        assert await read_committed(cluster, query.topic) == ALL, step
        if has_ended:
            assert step > 20, "a commit takes more requests than that"
            return
    pytest.fail("the commit never came to its end")


async def test_a_plan_that_gives_other_tasks_other_rows_succeeds_or_fails_loudly(broker: Broker, cluster: Cluster):
    outcomes = set()
    for step in range(1, STEPS_MAX):
        query = await begun(cluster, f"t{step}")
        has_ended = await commit_until_death(broker, cluster, query, step, is_sent=False)
        await time_out(cluster, query, 1)
        try:
            await again(query).run_batch(cluster, 1, OTHER_TASKS)
        except ExactlyOnceError as error:
            assert "half written" in str(error)
            outcomes.add("failed")
        else:
            assert await read_committed(cluster, query.topic) == ALL, step
            outcomes.add("succeeded")
        if has_ended:
            break
    assert outcomes == {"failed", "succeeded"}


async def commit_until_death(broker: Broker, cluster: Cluster, query: Query, step: int, *, is_sent: bool) -> bool:
    """Whether the driver lived to the end. The time of its own transaction is short, as the next run waits for it."""
    reports = await query.write(cluster, 1, SECOND)
    hasty = Query(query.topic, query.scope, query.run, SETTINGS._replace(decision_timeout_ms=300))
    try:
        return bool(
            await until_it_dies(
                broker.bootstrap, step, lambda mortal: hasty.commit(mortal, 1, reports), is_sent=is_sent
            )
        )
    except FencedError:
        return False


async def test_a_task_that_dies_at_any_request_is_run_again(broker: Broker, cluster: Cluster):
    query = await begun(cluster)
    for step in range(1, STEPS_MAX):
        reports = await query.write(cluster, step, [[b"%d" % step]])
        died = await until_it_dies(
            broker.bootstrap, step, lambda mortal: query.write_part(mortal, step, 1, [b"x"]), is_sent=True
        )
        reports.append(await query.write_part(cluster, step, 1, [b"x"]))
        await query.commit(cluster, step, reports)
        if died:
            break
    expected = [*(value for rows in FIRST for value in rows), *(b"%d" % each for each in range(1, step + 1))]
    assert step > 10
    assert await read_committed(cluster, "t") == sorted([*expected, *([b"x"] * step)])


async def test_an_attempt_that_comes_late_makes_the_commit_fail_and_nothing_is_visible(cluster: Cluster):
    query = await begun(cluster)
    reports = await query.write(cluster, 1, SECOND)
    await query.write_part(cluster, 1, 1, SECOND[1])  # A speculative one, whose report Spark does not take.
    with pytest.raises(ExactlyOnceError, match="not open any more"):
        await query.commit(cluster, 1, reports)
    await query.driver(cluster).abort(1, reports)
    assert await open_transactions(cluster) == {"tailrace-spark-query-t-1"}  # of the attempt that nobody knows of
    await again(query).run_batch(cluster, 1, SECOND)
    assert await read_committed(cluster, "t") == ALL


async def test_a_driver_that_was_thought_dead_cannot_commit(cluster: Cluster):
    query = await begun(cluster)
    stale = await query.write(cluster, 1, SECOND)
    await again(query).run_batch(cluster, 1, SECOND)
    await query.commit(cluster, 1, stale)  # The batch is written, and what this driver holds is not needed.
    with pytest.raises(ExactlyOnceError, match="comes too late"):
        await query.commit(cluster, 0, stale)
    with pytest.raises(ExactlyOnceError, match="comes too late"):
        await query.write_part(cluster, 0, 0, [b"late"])
    assert await read_committed(cluster, "t") == ALL


async def test_abort_leaves_what_was_decided_to_the_next_run(broker: Broker, cluster: Cluster):
    outcomes = set()
    for step in range(1, STEPS_MAX):
        query = await begun(cluster, f"t{step}")
        reports = await query.write(cluster, 1, SECOND)
        has_ended = await until_it_dies(
            broker.bootstrap, step, lambda mortal: query.commit(mortal, 1, reports), is_sent=True
        )
        await query.driver(cluster).abort(1, reports)
        outcomes.add(bool(await open_transactions(cluster)))
        await again(query).run_batch(cluster, 1, SECOND)
        assert await read_committed(cluster, query.topic) == ALL, step
        if has_ended:
            break
    assert outcomes == {False, True}


async def test_what_tasks_of_an_earlier_run_left_open_is_aborted(cluster: Cluster):
    query = await begun(cluster)
    await query.write(cluster, 1, [[b"x"]] * 5)
    assert len(await open_transactions(cluster)) == 5
    await again(query).run_batch(cluster, 1, SECOND)
    assert await open_transactions(cluster) == set()
    assert await read_committed(cluster, "t") == ALL


async def test_a_part_with_too_little_time_left_is_not_decided_on(cluster: Cluster):
    query = await begun(cluster)
    query.settings = SETTINGS._replace(timeout_ms=1000)
    reports = await query.write(cluster, 1, SECOND)
    await asyncio.sleep(0.6)
    with pytest.raises(ExactlyOnceError, match="less than half|not open any more"):
        await query.commit(cluster, 1, reports)
    await again(query).run_batch(cluster, 1, SECOND)
    assert await read_committed(cluster, "t") == ALL


async def open_transactions(cluster: Cluster) -> set[str]:
    found = await TransactionAdmin(cluster).transactions(states=["Ongoing"])
    return {each.transactional_id for each in found}
