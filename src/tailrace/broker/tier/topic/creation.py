"""__remote_log_metadata is created when the first topic has remote storage, as rlmm.config.* says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import REMOTE_LOG_METADATA_TOPIC
from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from tailrace.broker.node import Node
    from tailrace.model.config import BrokerConfig

_log = events.logger("tier")

_DONE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def metadata_topic(config: BrokerConfig, *, brokers: int) -> CreateTopicsRequest.CreatableTopic:
    """With as many replicas as are asked for, or as there are brokers: it is no use to wait for brokers that never
    come, and the topic can be given more later."""
    factor = max(1, min(config.rlmm_config_remote_log_metadata_topic_replication_factor, brokers))
    settings = {
        "cleanup.policy": "delete",
        "compression.type": "uncompressed",
        # What these records tell of is deleted elsewhere once they are there: they survive the loss of all power.
        "flush.messages": "1",
        "min.insync.replicas": str(min(config.rlmm_config_remote_log_metadata_topic_min_isr, factor)),
        "retention.bytes": "-1",
        # What is cut leaves the disk by whole segments.
        "segment.bytes": str(50 << 20),
        "retention.ms": str(config.rlmm_config_remote_log_metadata_topic_retention_ms),
        "unclean.leader.election.enable": "false",
    }
    setting = CreateTopicsRequest.CreatableTopicConfig
    return CreateTopicsRequest.CreatableTopic(
        name=REMOTE_LOG_METADATA_TOPIC,
        num_partitions=config.rlmm_config_remote_log_metadata_topic_num_partitions,
        replication_factor=factor,
        configs=[setting(name=name, value=value) for name, value in settings.items()],
    )


async def create_metadata_topic(node: Node) -> None:
    """Tried again by whoever still misses the topic."""
    wanted = metadata_topic(node.config, brokers=sum(broker.is_active for broker in node.image.brokers.values()))
    try:
        response = await node.forwarding.ask(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse)
        answer = response.topics[0]
        if answer.error_code not in _DONE:
            code = ErrorCode(answer.error_code)
            raise KafkaError(code, answer.error_message or code.name)
        await node.wait_topics([REMOTE_LOG_METADATA_TOPIC])
    except KafkaError as error:
        _log.warning("the topic of the tier's records cannot be created yet", cause=error.message)
