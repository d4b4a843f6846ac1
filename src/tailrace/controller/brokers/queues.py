"""What share groups have here beyond Kafka 4.3 (dead letters, back-off, the order of keys) needs brokers who all do it:
any may lead a partition.

A broker of Apache Kafka would take such a setting for one of a plugin: records would be given up without a letter, come
back at once, or go out of order. So these settings are refused while there is such a broker, and such a broker while a
group has them. A controller of Apache Kafka does not know the settings.
"""

from collections.abc import Mapping

from tailrace.controller.features import QUEUES
from tailrace.controller.image import MetadataImage, ResourceType
from tailrace.model.config import BrokerConfig, GroupConfig, apply_group
from tailrace.model.errors import ErrorCode, KafkaError


def check_group(image: MetadataImage, before: GroupConfig, after: GroupConfig) -> None:
    """Raises KafkaError INVALID_CONFIG."""
    asked = [name for name in _beyond_kafka(after) if name not in _beyond_kafka(before)]
    unable = sorted(node_id for node_id, broker in image.brokers.items() if QUEUES not in broker.features)
    if asked and unable:
        names = ", ".join(map(str, unable[:10])) + (" and others" if len(unable) > 10 else "")
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{asked[0]} needs brokers that all know it, and these do not: {names}. They are nodes of Apache Kafka, or "
            "of an older version: upgrade them, or take them out of the cluster.",
        )


def check_broker(image: MetadataImage, config: BrokerConfig, offered: Mapping[str, tuple[int, int]]) -> None:
    """Whether a broker that offers these features may join. Raises KafkaError UNSUPPORTED_VERSION."""
    if QUEUES in offered:
        return
    for (resource_type, name), texts in image.configs.items():
        if resource_type == ResourceType.GROUP and (asked := _beyond_kafka(apply_group(config, texts))):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Group {name} has {asked[0]}, which the broker does not know: it is one of Apache Kafka's, or of an "
                "older version.",
            )


def _beyond_kafka(config: GroupConfig) -> list[str]:
    """The settings that are on."""
    found = {
        "errors.deadletterqueue.topic.name": bool(config.errors_deadletterqueue_topic_name),
        "share.retry.backoff.ms": config.share_retry_backoff_ms > 0,
        "share.key.order": config.share_key_order,
    }
    return [name for name, is_on in found.items() if is_on]
