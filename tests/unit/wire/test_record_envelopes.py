"""Envelopes of stored records, as bytes that Kafka's tools read."""

import pytest

from tailrace.model.errors import ProtocolError
from tailrace.wire.apis.stored_records import (
    GROUP_RECORDS,
    METADATA_RECORDS,
    REMOTE_LOG_RECORDS,
    TRANSACTION_RECORDS,
    FeatureLevelRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionRecord,
    RemotePartitionDeleteMetadataRecord,
    TransactionLogKey,
    TransactionLogValue,
)
from tailrace.wire.record_envelopes import (
    UnknownRecordTypeError,
    decode_coordinator_record,
    decode_metadata_record,
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
)


def test_a_metadata_record() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=29)
    value = encode_metadata_record(record)
    assert value.hex(" ", 1) == "01 0c 00 11 " + b"metadata.version".hex(" ") + " 00 1d 00"
    assert decode_metadata_record(value) == record
    assert decode_metadata_record(memoryview(value)) == record


def test_the_newest_version_is_the_default() -> None:
    record = PartitionRecord(partition_id=1, replicas=[1], eligible_leader_replicas=[2])
    assert encode_metadata_record(record)[:3] == b"\x01\x03\x02"
    assert decode_metadata_record(encode_metadata_record(record)) == record
    assert encode_metadata_record(record, 1)[:3] == b"\x01\x03\x01"
    without = PartitionRecord(partition_id=1, replicas=[1])
    assert decode_metadata_record(encode_metadata_record(record, 1)) == without


def test_families_use_the_same_numbers() -> None:
    record = RemotePartitionDeleteMetadataRecord(broker_id=3)
    assert decode_metadata_record(encode_metadata_record(record), REMOTE_LOG_RECORDS) == record
    assert METADATA_RECORDS[2] is not REMOTE_LOG_RECORDS[2]


@pytest.mark.parametrize("value", ["", "01", "010c", "010c00", "020c0001001d00", "010c0901001d00", "010c0001001d0000"])
def test_a_damaged_metadata_record(value: str) -> None:
    with pytest.raises(ProtocolError):
        decode_metadata_record(bytes.fromhex(value))


def test_a_metadata_record_of_a_type_that_is_not_known() -> None:
    with pytest.raises(UnknownRecordTypeError, match="99"):
        decode_metadata_record(bytes.fromhex("01 63 00 00"))


def test_a_coordinator_record() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7)
    assert encode_coordinator_key(key).hex(" ") == "00 01 00 01 67 00 01 74 00 00 00 03"
    assert encode_coordinator_value(value, 3)[:2] == b"\x00\x03"
    encoded = encode_coordinator_key(key), encode_coordinator_value(value)
    assert decode_coordinator_record(GROUP_RECORDS, *encoded) == (key, value)


def test_a_tombstone() -> None:
    key = TransactionLogKey(transactional_id="t")
    assert decode_coordinator_record(TRANSACTION_RECORDS, encode_coordinator_key(key), None) == (key, None)


def test_keys_belong_to_their_topic() -> None:
    key = encode_coordinator_key(TransactionLogKey(transactional_id="t"))
    value = encode_coordinator_value(TransactionLogValue(producer_id=4))
    assert decode_coordinator_record(TRANSACTION_RECORDS, key, value)[1] == TransactionLogValue(producer_id=4)
    with pytest.raises(ProtocolError):
        decode_coordinator_record(GROUP_RECORDS, key, value)


@pytest.mark.parametrize(("key", "value"), [("", None), ("00", None), ("0001 0001", None)])
def test_a_damaged_coordinator_record(key: str, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_coordinator_record(GROUP_RECORDS, bytes.fromhex(key), value)


def test_a_coordinator_record_of_a_type_that_is_not_known() -> None:
    with pytest.raises(UnknownRecordTypeError, match="99"):
        decode_coordinator_record(GROUP_RECORDS, b"\x00\x63", None)
