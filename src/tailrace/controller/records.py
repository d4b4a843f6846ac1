"""Metadata records as they stand in the log: a frame version, the record's type and version, then the record.

All three are unsigned varints; none needs more than one byte yet. Records are written in the newest version, which is
what metadata.version 30 (Kafka 4.3) stands for.
"""

from tailrace.model.errors import ProtocolError
from tailrace.model.ports import Bytes
from tailrace.wire.apis import stored
from tailrace.wire.compile import decode, encode
from tailrace.wire.schema import Message

_FRAME_VERSION = 1
_PREFIX_SIZE = 3

_TYPES: dict[int, type[Message]] = {
    record_type.api_key: record_type
    for record_type in (
        stored.RegisterBrokerRecord,
        stored.UnregisterBrokerRecord,
        stored.TopicRecord,
        stored.PartitionRecord,
        stored.ConfigRecord,
        stored.PartitionChangeRecord,
        stored.FenceBrokerRecord,
        stored.UnfenceBrokerRecord,
        stored.RemoveTopicRecord,
        stored.DelegationTokenRecord,
        stored.UserScramCredentialRecord,
        stored.FeatureLevelRecord,
        stored.ClientQuotaRecord,
        stored.ProducerIdsRecord,
        stored.BrokerRegistrationChangeRecord,
        stored.AccessControlEntryRecord,
        stored.RemoveAccessControlEntryRecord,
        stored.NoOpRecord,
        stored.RemoveUserScramCredentialRecord,
        stored.BeginTransactionRecord,
        stored.EndTransactionRecord,
        stored.AbortTransactionRecord,
        stored.RemoveDelegationTokenRecord,
        stored.RegisterControllerRecord,
        stored.ClearElrRecord,
    )
    if record_type.api_key is not None
}


def encode_record(record: Message) -> bytes:
    version = record.versions[-1]
    assert record.api_key is not None, f"{type(record).__name__} is no metadata record"
    return bytes((_FRAME_VERSION, record.api_key, version)) + encode(record, version)


def decode_record(value: Bytes) -> Message:
    """Raises ProtocolError for what a newer version has written."""
    if len(value) < _PREFIX_SIZE or value[0] != _FRAME_VERSION or value[1] not in _TYPES:
        raise ProtocolError(
            f"The metadata log has a record {bytes(value[:_PREFIX_SIZE]).hex()} that this version does not know. "
            "It was written by a newer version: start that one."
        )
    return decode(_TYPES[value[1]], value[2], value, _PREFIX_SIZE)
