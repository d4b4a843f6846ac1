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
from tailrace.wire.apis.data import ListOffsetsRequest
from tests.unit.spark.source.leader import T0, T1, Leader


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
    # The third answer is where the batch ends, the fourth whether the log still reaches so far.
    assert await plan(Leader(ends=[100, 100, 100, 95, 100])) == everything
    assert await plan(Leader(ends=[95, 100]), is_stream=True) == [OffsetRange(T0, 20, 100), OffsetRange(T1, 20, 100)]
    with pytest.raises(DataLossError, match="offsets 95 to 99 of t-0 are not there"):
        await plan(Leader(ends=[95]), is_stream=True)


@pytest.mark.parametrize(("since_ms", "first", "is_asked"), [(50, 50, True), (50.001, 51, True), (-2, 10, False)])
async def test_the_first_offset_that_a_filter_on_the_timestamp_can_want(since_ms: float, first: int, is_asked: bool):
    """Brokers know no times below 0, where the records without a time are: all may be wanted then."""
    leader = Leader()
    splits = await plan(leader, since=datetime.fromtimestamp(since_ms / 1000, UTC))
    assert [split.start for split in splits] == [first, first]
    asked = [each.topics[0].partitions[0].timestamp for each in leader.received(ListOffsetsRequest)]
    assert any(timestamp >= 0 for timestamp in asked) is is_asked
