"""From offsets to splits, against a scripted broker."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual

from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.filters import PushedFilters
from tailrace.spark.source.lookup import OffsetLookup
from tailrace.spark.source.loss import DataLossError
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.source.planning import plan_batch, plan_micro_batch
from tests.unit.spark.source.test_lookup import T0, T1, Leader


async def plan(leader: Leader, *, since: datetime | None = None, is_stream: bool = False) -> list[OffsetRange]:
    """A batch, or the micro-batch from 20 to 100."""
    async with leader as peer:
        given = {"kafka.bootstrap.servers": str(peer.address), "subscribe": "t", "fetchoffset.retryintervalms": "1"}
        options = ReadOptions.parse(given, is_stream=is_stream)
        cluster = peer.cluster()
        lookup = OffsetLookup(cluster, options)
        filters = PushedFilters()
        if since is not None:
            assert filters.push(GreaterThanOrEqual(("timestamp",), since))
        try:
            if is_stream:
                return await plan_micro_batch(lookup, options, {T0: 20, T1: 20}, {T0: 100, T1: 100})
            return await plan_batch(lookup, options, filters)
        finally:
            cluster.close()


async def test_a_new_leader_that_names_an_end_too_low_is_asked_again():
    """It may not know yet how far its records were committed: what it does not know of is not lost."""
    everything = [OffsetRange(T0, 10, 100), OffsetRange(T1, 10, 100)]
    # Answers to: where the log begins, where it ends, and where it ends once more.
    assert await plan(Leader(ends=[100, 100, 95, 100])) == everything
    assert await plan(Leader(ends=[95, 100]), is_stream=True) == [OffsetRange(T0, 20, 100), OffsetRange(T1, 20, 100)]
    with pytest.raises(DataLossError, match="offsets 95 to 99 of t-0 are not there"):
        await plan(Leader(ends=[95]), is_stream=True)


@pytest.mark.parametrize(
    ("since_ms", "first"),
    [(50, 50), (50.001, 51), (0, 10), (-2, 10)],
)
async def test_the_first_offset_that_a_filter_on_the_timestamp_can_want(since_ms: float, first: int):
    leader = Leader()
    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    assert [split.start for split in await plan(leader, since=since)] == [first, first]


async def test_records_without_a_time_are_before_1970():
    """Brokers cannot be asked for times below 0, and would tell the first offset at or after 0."""
    leader = Leader()
    asked = leader.asked_times
    await plan(leader, since=datetime(1969, 1, 1, tzinfo=UTC))
    assert not [time for time in asked if time >= 0]
