"""Topics with remote storage need brokers who can serve it, all of them: any may get a replica.

A broker that has no remote storage, or one of another format, as those of Apache Kafka, would take its local log for
all there is: it would answer OFFSET_OUT_OF_RANGE for what lies in the store, and consumers would jump. So such a topic
is refused while there is such a broker, and such a broker while there is such a topic. A controller of Apache Kafka
does not ask this.
"""

from collections.abc import Mapping

from tailrace.controller.features import REMOTE_STORAGE
from tailrace.controller.image import MetadataImage, ResourceType
from tailrace.model.errors import ErrorCode, KafkaError

_ENABLE = "remote.storage.enable"


def check_topic(image: MetadataImage, before: Mapping[str, str], *, is_enabled: bool) -> None:
    """Whether a topic whose settings were `before` may have it. Raises KafkaError INVALID_CONFIG."""
    if not is_enabled or _has_it(before):
        return
    unable = sorted(node_id for node_id, broker in image.brokers.items() if REMOTE_STORAGE not in broker.features)
    if unable:
        names = ", ".join(map(str, unable[:10])) + (" and others" if len(unable) > 10 else "")
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{_ENABLE}=true needs brokers that can all read the same store, and these cannot: {names}. They are nodes "
            "of Apache Kafka, whose remote storage has another format, or were started without "
            "remote.log.storage.system.enable=true: set it there and restart them, or take them out of the cluster.",
        )


def check_broker(image: MetadataImage, offered: Mapping[str, tuple[int, int]]) -> None:
    """Whether a broker that offers these features may join. Raises KafkaError UNSUPPORTED_VERSION."""
    if REMOTE_STORAGE in offered:
        return
    for (resource_type, name), texts in image.configs.items():
        if resource_type == ResourceType.TOPIC and _has_it(texts):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Topic {name} has remote storage, which the broker cannot read: it is one of Apache Kafka's, or has "
                "not remote.log.storage.system.enable=true.",
            )


def _has_it(texts: Mapping[str, str]) -> bool:
    return texts.get(_ENABLE, "").strip().lower() == "true"
