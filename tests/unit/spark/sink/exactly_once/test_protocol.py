"""The protocol of tasks and drivers against a broker, without Spark: whoever dies wherever, each row is there once."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest

from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.transactions.admin import TransactionAdmin
from tailrace.client.transactions.errors import FencedError
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.ports import real_ports
from tailrace.spark.sink.exactly_once.decision import Decision, ExactlyOnceError, Report
from tailrace.spark.sink.exactly_once.decision_log import DecisionLog
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

STEPS_MAX = 200


def rows_of(batch: int) -> Rows:
    return [[b"%d a" % batch], [b"%d b" % batch, b"%d c" % batch], [b"%d d" % batch], []]


def rows_in_other_tasks(batch: int) -> Rows:
    return [[b"%d a" % batch, b"%d d" % batch], [b"%d c" % batch, b"%d b" % batch]]


def values_of(*batches: int) -> list[bytes]:
    return sorted(value for batch in batches for rows in rows_of(batch) for value in rows)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(in_process=True) as broker:
        yield broker


@pytest.fixture
async def cluster(broker: Broker) -> AsyncIterator[Cluster]:
    cluster = Cluster(real_ports(), parse_bootstrap(broker.bootstrap))
    yield cluster
    cluster.close()


@pytest.fixture
async def query(cluster: Cluster) -> Query:
    """One that has written its first batch. The names are its own, for brokers that serve more than one test."""
    name = f"query-{uuid.uuid4()}"
    await Admin(cluster).create_topic(name, partition_count=PARTITION_COUNT)
    query = Query(topic=name, scope=name, run="run 1")
    await query.run_batch(cluster, 0, rows_of(0))
    return query


def again(query: Query) -> Query:
    return query.replaced(run="run 2")


async def time_out(cluster: Cluster, query: Query, *indexes: int) -> None:
    """What a coordinator does with transactions whose time is over: it aborts them, and fences their producer."""
    for index in indexes:
        name = Names(query.settings.prefix, query.scope).part(index)
        producer = TransactionalProducer(cluster, TransactionOptions(name))
        await producer.init()
        producer.close()


async def test_batch_after_batch(cluster: Cluster, query: Query):
    await query.run_batch(cluster, 1, rows_of(1))
    await query.run_batch(cluster, 2, [[], []])
    assert await read_committed(cluster, query.topic) == values_of(0, 1)


# The parts whose time was over before the next run came.
NONE: tuple[int, ...] = ()
ALL_PARTS = (0, 1, 2)


async def commit_until_death(
    broker: Broker, query: Query, batch: int, reports: Sequence[Report], *, step: int, is_sent: bool
) -> bool:
    """Whether the driver lived to the end. The time of its own transaction is short, as the next run waits for it."""
    hasty = query.replaced(settings=SETTINGS._replace(decision_timeout_ms=300))
    try:
        result = await until_it_dies(
            broker.bootstrap, step, lambda mortal: hasty.commit(mortal, batch, reports), is_sent=is_sent
        )
    except FencedError:
        return False  # It took longer than that.
    return result is not None


@pytest.mark.parametrize(
    ("timed_out", "is_sent"),
    [
        (NONE, True),
        ((1,), True),
        pytest.param(NONE, False, marks=pytest.mark.long),
        pytest.param((1,), False, marks=pytest.mark.long),
        pytest.param(ALL_PARTS, False, marks=pytest.mark.long),
        pytest.param(ALL_PARTS, True, marks=pytest.mark.long),
    ],
)
async def test_a_driver_that_dies_at_any_request(
    broker: Broker, cluster: Cluster, query: Query, timed_out: tuple[int, ...], is_sent: bool
):
    for batch in range(1, STEPS_MAX):
        reports = await query.write(cluster, batch, rows_of(batch))
        has_ended = await commit_until_death(broker, query, batch, reports, step=batch, is_sent=is_sent)
        await time_out(cluster, query, *timed_out)
        query = query.replaced(run=f"run {batch}")
        await query.run_batch(cluster, batch, rows_of(batch))
        if has_ended:
            break
    assert 20 < batch < STEPS_MAX - 1, "a commit takes more than 20 requests, and not as many as that"
    assert await read_committed(cluster, query.topic) == values_of(*range(batch + 1))


async def test_a_plan_that_gives_other_tasks_other_rows_succeeds_or_fails_loudly(
    broker: Broker, cluster: Cluster, query: Query
):
    failures, succeeded = [], []
    for step in range(1, STEPS_MAX):
        # Each in a query of its own, as one that has failed cannot go on.
        query = query.replaced(scope=f"{query.topic}-{step}")
        reports = await query.write(cluster, step, rows_of(step))
        has_ended = await commit_until_death(broker, query, step, reports, step=step, is_sent=False)
        await time_out(cluster, query, 1)
        try:
            await again(query).run_batch(cluster, step, rows_in_other_tasks(step))
            succeeded.append(step)
        except ExactlyOnceError as error:
            failures.append(str(error))
        if has_ended:
            break
    assert failures
    assert all("half written" in failure for failure in failures)
    found = await read_committed(cluster, query.topic)
    whole = [value for value in found if int(value.split()[0]) in (0, *succeeded)]
    assert whole == values_of(0, *succeeded)
    assert max(Counter(found).values()) == 1


async def test_what_was_decided_outlives_an_abort(broker: Broker, cluster: Cluster, query: Query):
    kept = []
    for batch in range(1, STEPS_MAX):
        reports = await query.write(cluster, batch, rows_of(batch))
        has_ended = await commit_until_death(broker, query, batch, reports, step=batch, is_sent=True)
        await query.driver(cluster).abort(batch, reports)
        kept.append(len(await open_transactions(cluster, query)))
        query = query.replaced(run=f"run {batch}")
        await query.run_batch(cluster, batch, rows_of(batch))
        if has_ended:
            break
    # Before the decision everything is aborted, and at the end everything is committed.
    assert kept[0] == kept[-1] == 0
    assert max(kept) == len(ALL_PARTS)
    assert await read_committed(cluster, query.topic) == values_of(*range(batch + 1))


async def test_a_task_that_dies_at_any_request_is_run_again(broker: Broker, cluster: Cluster, query: Query):
    for batch in range(1, STEPS_MAX):
        values = [b"%d x" % batch]
        has_ended = await until_it_dies(
            broker.bootstrap, batch, partial(query.write_part, batch=batch, index=0, values=values), is_sent=True
        )
        await query.run_batch(cluster, batch, [values])
        if has_ended:
            break
    assert batch > 10, "a task takes more requests than that"
    expected = [*values_of(0), *(b"%d x" % each for each in range(1, batch + 1))]
    assert await read_committed(cluster, query.topic) == sorted(expected)


async def test_an_attempt_that_comes_late_makes_the_commit_fail_and_nothing_is_visible(cluster: Cluster, query: Query):
    reports = await query.write(cluster, 1, rows_of(1))
    await query.write_part(cluster, 1, 1, rows_of(1)[1])  # A speculative one, whose report Spark does not take.
    with pytest.raises(ExactlyOnceError, match="not open any more"):
        await query.commit(cluster, 1, reports)
    await query.driver(cluster).abort(1, reports)
    assert await open_transactions(cluster, query) == {1}  # that of the attempt that nobody knows of
    await again(query).run_batch(cluster, 1, rows_of(1))
    assert await read_committed(cluster, query.topic) == values_of(0, 1)


async def test_a_driver_that_was_thought_dead_cannot_commit(cluster: Cluster, query: Query):
    stale = await query.write(cluster, 1, rows_of(1))
    await again(query).run_batch(cluster, 1, rows_of(1))
    await query.commit(cluster, 1, stale)  # The batch is written, and what this driver holds is not needed.
    with pytest.raises(ExactlyOnceError, match="comes too late"):
        await query.commit(cluster, 0, stale)
    with pytest.raises(ExactlyOnceError, match="comes too late"):
        await query.write_part(cluster, 0, 0, [b"late"])
    assert await read_committed(cluster, query.topic) == values_of(0, 1)


async def decide(cluster: Cluster, query: Query, decision: Decision) -> None:
    """As a driver that dies right after it."""
    names = Names(query.settings.prefix, query.scope)
    async with TransactionalProducer(cluster, TransactionOptions(names.driver)) as producer:
        await DecisionLog(cluster, query.settings, names).write(decision, producer)


async def test_a_batch_that_was_decided_on_is_not_left_behind(cluster: Cluster, query: Query):
    reports = await query.write(cluster, 1, rows_of(1))
    await decide(cluster, query, Decision(1, "run 1", 1, tuple(report.part for report in reports)))
    with pytest.raises(ExactlyOnceError, match="comes too early"):
        await query.write_part(cluster, 2, 0, [b"early"])
    assert await open_transactions(cluster, query) == {*ALL_PARTS}, "whoever begins aborts them"
    await again(query).run_batch(cluster, 1, rows_of(1))
    await again(query).run_batch(cluster, 2, rows_of(2))
    assert await read_committed(cluster, query.topic) == values_of(0, 1, 2)


async def test_writes_of_one_name_under_two_prefixes_are_two(cluster: Cluster, query: Query):
    other = query.replaced(settings=SETTINGS._replace(prefix="other"))
    await other.run_batch(cluster, 0, [[b"of the other"]])
    assert await read_committed(cluster, query.topic) == sorted([*values_of(0), b"of the other"])


async def test_a_decision_topic_that_could_grow_under_the_decisions_is_refused(cluster: Cluster, query: Query):
    await Admin(cluster).create_topic("decisions", partition_count=15)
    query = query.replaced(settings=SETTINGS._replace(decision_topic="decisions"))
    with pytest.raises(ExactlyOnceError, match="has 15 partitions, and 16 are used"):
        await query.run_batch(cluster, 0, rows_of(0))


async def test_a_batch_that_is_written_does_not_fail_for_what_others_left_open(
    cluster: Cluster, query: Query, monkeypatch: pytest.MonkeyPatch
):
    async def transactions(*_: object, **__: object) -> list[object]:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "a broker is down")

    monkeypatch.setattr(TransactionAdmin, "transactions", transactions)
    await again(query).run_batch(cluster, 1, rows_of(1))
    assert await read_committed(cluster, query.topic) == values_of(0, 1)


async def test_what_tasks_of_an_earlier_run_left_open_is_aborted(cluster: Cluster, query: Query):
    await query.write(cluster, 1, [[b"x"]] * 5)
    assert len(await open_transactions(cluster, query)) == 5
    await again(query).run_batch(cluster, 1, rows_of(1))
    assert await open_transactions(cluster, query) == set()
    assert await read_committed(cluster, query.topic) == values_of(0, 1)


async def test_a_part_with_too_little_time_left_is_not_decided_on(cluster: Cluster, query: Query):
    query = query.replaced(settings=SETTINGS._replace(timeout_ms=1000))
    reports = await query.write(cluster, 1, rows_of(1))
    await asyncio.sleep(0.6)
    with pytest.raises(ExactlyOnceError, match=r"less than half|not open any more"):
        await query.commit(cluster, 1, reports)
    await again(query).run_batch(cluster, 1, rows_of(1))
    assert await read_committed(cluster, query.topic) == values_of(0, 1)


async def test_evidence_that_may_be_forgotten_is_no_proof(cluster: Cluster, query: Query):
    query = query.replaced(scope=f"{query.topic}-other")
    parts = tuple(report.part for report in await query.write(cluster, 0, rows_of(0)))
    await decide(cluster, query, Decision(0, "run 1", decided_ms=1, parts=parts))
    await time_out(cluster, query, *ALL_PARTS)
    with pytest.raises(ExactlyOnceError, match="cannot be told any more"):
        await again(query).run_batch(cluster, 0, rows_of(0))


async def open_transactions(cluster: Cluster, query: Query) -> set[int]:
    """The indexes of its parts that have an open transaction."""
    names = Names(query.settings.prefix, query.scope)
    found = await TransactionAdmin(cluster).transactions(states=["Ongoing"])
    return {names.part_index(each.transactional_id) for each in found} - {None}
