"""Which epoch an earlier incarnation of this broker was registered with: the metadata tells, once all of it is here.

Asked only after a run that was killed between its registration and the mark of its epoch (`log.run_marks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, uuid_text
from tailrace.wire.apis.quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from tailrace.broker.cluster.forwarding import Forwarding
    from tailrace.broker.quorum.quorum import Quorum

_log = events.logger("proof")


async def find_epoch(quorum: Quorum, forwarding: Forwarding, node_id: int, incarnation: str) -> int | None:
    """None if the last registration was that of another incarnation, or nobody tells."""
    try:
        await quorum.wait_offset(await _find_committed_end(quorum, forwarding))
    except KafkaError as error:
        _log.warning("what the last run had cannot be proved", cause=error.message)
        return None
    broker = quorum.image.brokers.get(node_id)
    return broker.epoch if broker is not None and uuid_text(broker.incarnation_id) == incarnation else None


async def _find_committed_end(quorum: Quorum, forwarding: Forwarding) -> int:
    """All that was committed until now lies before it."""
    if quorum.is_active:
        return int(quorum.image.next_offset)
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    response = await forwarding.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    found = [each for topic in response.topics for each in topic.partitions if not each.error_code]
    if response.error_code or not found:
        code = ErrorCode(response.error_code or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(code, "the controller does not tell how far the metadata reaches")
    return found[0].high_watermark
