"""Ids as types, and the values that stand for none.

A NewType costs nothing at run time and keeps the id of a node from being passed as the index of a partition. Offsets,
epochs and sequences are plain integers: they are computed with, and the sum of two is an integer again; what keeps them
apart are names. Ranges are half-open (`start <= x < end`) everywhere; `last` is used only where the wire itself is
inclusive.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
PartitionIndex = NewType("PartitionIndex", int)
# 16 raw bytes, as on the wire; its text form is unpadded base64url, as in Kafka's tools and files.
Uuid = NewType("Uuid", bytes)

NO_OFFSET = -1
NO_EPOCH = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
ZERO_UUID = Uuid(bytes(16))

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
# Kafka gives the metadata topic this fixed id: version 0, last bit one.
CLUSTER_METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"  # Not internal, as in Kafka: its tools may read and write it.
# Of the headers of dead letters of share groups (KIP-1191).
DEAD_LETTER_HEADER_PREFIX = "__dlq.errors."
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_text(uuid: Uuid) -> str:
    return urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def dashed_uuid(uuid: bytes) -> str:
    """The form that people know: 8-4-4-4-12 hexadecimal digits."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def parse_uuid(text: str) -> Uuid:
    """Raises ValueError for anything but 22 base64url characters."""
    raw = urlsafe_b64decode(text + "==")
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a UUID: expected 22 base64url characters")
    return Uuid(raw)
