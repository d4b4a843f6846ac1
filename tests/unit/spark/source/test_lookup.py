"""What is asked of the cluster, and asked again: against a scripted broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import TopicPartition
from tailrace.spark.options.bounds import AtOffsets, AtTime, AtTimes, Bound, EndOfLog, NoMatch
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.lookup import OffsetLookup
from tailrace.wire.apis.data import ListOffsetsRequest, MetadataRequest, MetadataResponse
from tests.unit.spark.source.leader import T0, T1, Leader


@asynccontextmanager
async def asking(leader: Leader | None = None, **given: str) -> AsyncIterator[OffsetLookup]:
    async with leader or Leader() as peer:
        options = {"kafka.bootstrap.servers": str(peer.address), "fetchoffset.retryintervalms": "1"} | given
        if not options.keys() & {"assign", "subscribepattern"}:
            options.setdefault("subscribe", "t")
        cluster = peer.cluster()
        yield OffsetLookup(cluster, ReadOptions.parse(options, is_stream=True))
        cluster.close()


@pytest.mark.parametrize(
    ("bound", "first", "second"),
    [
        (EndOfLog(EARLIEST), 10, 10),
        (EndOfLog(LATEST), 100, 100),
        (AtOffsets({T0: 42, T1: LATEST}), 42, 100),
        (AtOffsets({T0: EARLIEST, T1: 7}), 10, 7),
        (AtTime(50, NoMatch.ERROR), 50, 50),
        (AtTimes({T0: 5, T1: 500}, NoMatch.LATEST), 10, 100),
    ],
)
async def test_bounds(bound: Bound, first: int, second: int):
    async with asking() as lookup:
        assert await lookup.resolve(bound, is_start=True) == {T0: first, T1: second}


async def test_a_time_after_the_last_record():
    async with asking() as lookup:
        with pytest.raises(OptionError, match="t-0 has no record at or after the starting timestamp 100"):
            await lookup.resolve(AtTime(100, NoMatch.ERROR), is_start=True)
        assert await lookup.resolve(AtTime(100, NoMatch.ERROR), is_start=False) == {T0: 100, T1: 100}


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        (AtOffsets({T0: 1}), "startingOffsets lacks t-1: .*-2 stands for the earliest"),
        (AtOffsets({T0: 1, T1: 1, TopicPartition("t", 2): 1}), "startingOffsets names t-2"),
        (AtTimes({T1: 1}, NoMatch.ERROR), "startingOffsetsByTimestamp lacks t-0: it must name every partition"),
    ],
)
async def test_every_partition_must_be_named(bound: Bound, message: str):
    async with asking() as lookup:
        with pytest.raises(OptionError, match=message):
            await lookup.resolve(bound, is_start=True)


async def test_an_end_below_what_was_read_is_asked_for_again():
    async with asking(Leader(ends=[80, 100])) as lookup:
        assert await lookup.latest({T0: 90}) == {T0: 100, T1: 100}
    leader = Leader(ends=[80])
    async with asking(leader) as lookup:
        assert await lookup.latest({T0: 90}) == {T0: 80, T1: 80}
        assert len(leader.received(ListOffsetsRequest)) == 3


async def test_leaders_that_move_are_asked_again():
    leader = Leader()
    leader.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    async with asking(leader) as lookup:
        assert await lookup.earliest([T0]) == {T0: 10}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "t"}, [T0, T1]),
        ({"subscribepattern": "^t|x"}, [T0, T1]),
        ({"subscribepattern": "x"}, []),
        ({"assign": '{"t": [1]}'}, [T1]),
    ],
)
async def test_subscriptions(given: dict[str, str], expected: list[TopicPartition]):
    async with asking(**given) as lookup:
        assert await lookup.partitions() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "t,other"}, "topic other does not exist: .* tailrace topic create other"),
        ({"assign": '{"t": [0, 2]}'}, "assign names t-2, and that topic has 2 partitions"),
    ],
)
async def test_what_does_not_exist(given: dict[str, str], message: str):
    async with asking(**given) as lookup:
        with pytest.raises(OptionError, match=message):
            await lookup.partitions()


async def test_a_topic_that_was_known_may_be_gone():
    async with asking(subscribe="t,other") as lookup:
        assert await lookup.partitions([TopicPartition("other", 0)]) == [T0, T1]


async def test_a_known_topic_that_a_broker_leaves_out_is_asked_for_again():
    """It would count as new when it is back, and be read again from its beginning."""
    leader = Leader()
    told = leader.scripts[MetadataRequest]

    def tell(request: MetadataRequest) -> MetadataResponse:
        # A broker that has just started.
        return MetadataResponse() if len(leader.received(MetadataRequest)) == 1 else told(request)

    async with asking(leader, subscribepattern="t") as lookup:
        await lookup.partitions()
        leader.requests.clear()
        leader.scripts[MetadataRequest] = tell
        assert await lookup.partitions() == [T0, T1]
    async with asking(subscribepattern="t|other") as lookup:
        assert await lookup.partitions([TopicPartition("other", 0)]) == [T0, T1]


@pytest.mark.parametrize(("cache_ms", "questions"), [("-1", 3), ("60000", 1)])
async def test_partitions_are_asked_for_each_time_unless_cached(cache_ms: str, questions: int):
    leader = Leader()
    async with asking(leader, **{"partition.metadata.cache.ttl.ms": cache_ms}) as lookup:
        for _ in range(3):
            await lookup.partitions()
    assert len(leader.received(MetadataRequest)) == questions
