"""The names of the folders of logs, as Kafka has them.

<topic>-<partition>                        a log
<topic>-<partition>.<32 hex digits>-...    one that is deleted, set aside, or being copied
"""

from tailrace.model.ids import CLUSTER_METADATA_TOPIC, PartitionIndex, TopicPartition
from tailrace.model.ports import Random

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
# The longest file name that every file system that matters allows.
_NAME_LENGTH_MAX = 255


def parse_folder_name(name: str) -> TopicPartition | None:
    topic, dash, partition = name.rpartition("-")
    # The metadata log lies beside the others but belongs to the quorum: as a stray it would be deleted.
    if not topic or not dash or not partition.isdecimal() or topic == CLUSTER_METADATA_TOPIC:
        return None
    return TopicPartition(topic, PartitionIndex(int(partition)))


def unique_folder_name(topic_partition: TopicPartition, random: Random, suffix: str) -> str:
    """A long topic name loses its end."""
    ending = f"-{topic_partition.partition}.{random.uuid().hex()}{suffix}"
    return f"{topic_partition.topic[: _NAME_LENGTH_MAX - len(ending)]}{ending}"
