"""Records of __remote_log_metadata: byte for byte what Kafka's own code writes, and in the same of its 50 partitions.

`tier/records.jsonl` is what `tier/Records.java` printed with the jars of Kafka 4.3.0.
"""

import json
from pathlib import Path

from tailrace.model.ids import PartitionIndex, parse_uuid
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.records import (
    PartitionState,
    SegmentState,
    copy_started,
    metadata_partition,
    partition_delete,
    segment_update,
)
from tailrace.wire.record_envelopes import encode_metadata_record

LINES = [json.loads(line) for line in (Path(__file__).parent / "tier" / "records.jsonl").read_text().splitlines()]


def test_records_are_kafkas() -> None:
    assert len(LINES) == 36
    for at, line in enumerate(LINES):
        number = at // 3
        owner = TieredPartition(parse_uuid(line["topic_id"]), PartitionIndex(line["partition"]))
        segment = RemoteSegment(
            segment_id=parse_uuid(line["id"]),
            base_offset=100,
            end_offset=200,
            size_bytes=4096,
            object_bytes=4096 + number,
            max_timestamp=1700000000000,
            broker_id=7,
            epochs=((0, 100), (3, 150 + number)),
        )
        ours = {
            "started": lambda: copy_started("orders", owner, segment, leader_epoch=3, now_ms=1700000001000),  # noqa: B023
            "finished": lambda: segment_update(
                "orders",
                owner,  # noqa: B023
                segment,  # noqa: B023
                SegmentState.COPY_FINISHED,
                broker_id=7,
                leader_epoch=3,
                now_ms=1700000002000,
            ),
            "deletion": lambda: partition_delete(
                "orders",
                owner,  # noqa: B023
                PartitionState.DELETE_MARKED,
                broker_id=7,
                now_ms=1700000003000,
            ),
        }[line["kind"]]()
        assert encode_metadata_record(ours).hex() == line["value"], line["kind"]
        assert metadata_partition(owner, 50) == line["place"]
