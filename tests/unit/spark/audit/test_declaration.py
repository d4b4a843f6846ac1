"""What an audit can be: sides that fit each other, and differences that exist."""

import pytest

from tailrace.spark.audit import Audit, HistorySide, TableSide, TopicSide
from tailrace.spark.pipelines.declaration import DeclarationError

TOPIC = TopicSide("orders", "127.0.0.1:9092")


@pytest.mark.parametrize(
    ("declare", "field", "message"),
    [
        (lambda: TableSide("/data"), "by", "tells its rows apart"),
        (lambda: TableSide("/data", by=("id",), offset="o"), "offset", "given together"),
        (lambda: TableSide("", by=("id",)), "table", "path or a name"),
        (lambda: TableSide("/data", by=("id",), catalog={"uri": "x"}), "catalog", "in no catalog"),
        (lambda: TopicSide("", "127.0.0.1:9092"), "topic", "needs a name"),
        (lambda: TopicSide("orders", "127.0.0.1:9092", start="yesterday"), "start", "neither earliest"),
        (lambda: Audit(TOPIC, TableSide("/data", by=("id",))), "actual", "by has 2 expressions .* and 1 for actual"),
        (lambda: Audit(TOPIC, TopicSide("a", "b:1", compare=("headers",))), "actual", "compare has 0 .* and 1 for"),
        (lambda: Audit(HistorySide("h"), TableSide("/data", by=("id",))), "actual", "against one topic"),
        (lambda: Audit(HistorySide("h"), TopicSide("a,b", "b:1")), "actual", "against one topic"),
        (lambda: Audit(TOPIC, TOPIC, allow=("loss",)), "allow", "no difference 'loss': they are lost, "),
        (lambda: Audit(TOPIC, TOPIC, samples=-1), "samples", "from 0 to 1000"),
    ],
)
def test_what_cannot_be_is_refused_by_the_field_that_says_it(declare, field, message):
    with pytest.raises(DeclarationError, match=message) as caught:
        declare()
    assert caught.value.key == field


def test_bounds_become_options_of_the_source():
    side = TopicSide(
        "orders", "b:1", start="2026-01-31T12:00:00Z", end='{"orders": {"0": 5}}', kafka={"client.id": "x"}
    )
    assert side.source_options == {
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "x",
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "orders",
        "startingOffsetsByTimestampStrategy": "latest",
        "startingTimestamp": "1769860800000",
        "endingOffsets": '{"orders": {"0": 5}}',
    }
    assert TopicSide("orders", "b:1", start="2026-01-31T13:00:00+01:00").source_options["startingTimestamp"] == (
        "1769860800000"
    )
    assert not TopicSide("orders", "b:1", kafka={"isolation.level": "read_uncommitted"}).is_read_committed
