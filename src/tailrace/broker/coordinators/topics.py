"""Topics that are created because someone asks for them; internal ones with settings of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from tailrace.broker.node import Node
    from tailrace.model.config import BrokerConfig


def creatable_topic(config: BrokerConfig, name: str) -> CreateTopicsRequest.CreatableTopic:
    """As it is created when someone asks for it."""
    topic, settings = CreateTopicsRequest.CreatableTopic, {"cleanup.policy": "compact"}
    if name == CONSUMER_OFFSETS_TOPIC:
        count, replication_factor = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
        settings |= {"compression.type": "producer", "segment.bytes": str(config.offsets_topic_segment_bytes)}
    elif name == TRANSACTION_STATE_TOPIC:
        count = config.transaction_state_log_num_partitions
        replication_factor = config.transaction_state_log_replication_factor
        settings |= {
            "compression.type": "uncompressed",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "unclean.leader.election.enable": "false",
        }
    else:
        return topic(name=name, num_partitions=-1, replication_factor=-1)
    setting = CreateTopicsRequest.CreatableTopicConfig
    return topic(
        name=name,
        num_partitions=count,
        replication_factor=replication_factor,
        configs=[setting(name=each, value=value) for each, value in settings.items()],
    )


async def wait_internal_topic(node: Node, name: str) -> None:
    """Until it exists and this broker knows of it. Raises KafkaError if it cannot be created now, as with fewer brokers
    than it is to have replicas."""
    if name in node.image.topics:
        return
    request = CreateTopicsRequest(topics=[creatable_topic(node.config, name)])
    response = await node.forwarding.ask(request, CreateTopicsResponse)
    result = response.topics[0]
    if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{name} cannot be created: {result.error_message or ErrorCode(result.error_code).name}",
        )
    await node.wait_topics([name])
