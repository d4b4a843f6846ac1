"""Producer ids and transactions: requests and responses.

Declarations only, in the language of `wire.schema`; nothing here decides anything. A docstring tells what a version
changed in meaning; what it changed in form stands in the fields.
"""

from __future__ import annotations

from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.schema import Message, Struct, array, boolean, int8, int16, int32, int64, string


class InitProducerIdRequest(Message, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"):
    """A null transactional id asks for an idempotent producer's id. v3 keeps the id and bumps its epoch (KIP-360); v4
    knows PRODUCER_FENCED (KIP-588); v6, not stable yet, leaves a prepared transaction open (KIP-939)."""

    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable_2pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Message, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


class AddPartitionsToTxnRequest(Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"):
    """Up to 3 for one producer; from 4 on for several, between brokers, to add or only to verify (KIP-890)."""

    class AddPartitionsToTxnTopic(Struct):
        name: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = string("4+")
        producer_id: int = int64("4+")
        producer_epoch: int = int16("4+")
        verify_only: bool = boolean("4+")
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = array("AddPartitionsToTxnTopic", "4+")

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnResponse(Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"):
    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int = int32("0+")
        partition_error_code: int = int16("0+")

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = string("0+")
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = array(
            "AddPartitionsToTxnPartitionResult", "0+"
        )

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = string("4+")
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = array(
            "AddPartitionsToTxnTopicResult", "4+"
        )

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")


class AddOffsetsToTxnRequest(Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


class AddOffsetsToTxnResponse(Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


class EndTxnRequest(Message, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


class EndTxnResponse(Message, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """v5 hands out the epoch for the next transaction (KIP-890)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)


class WriteTxnMarkersRequest(Message, api_key=ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+"):
    """From a transaction coordinator to the leaders of the partitions that a transaction wrote to. v2 adds the
    transaction version (KIP-1228)."""

    class WritableTxnMarkerTopic(Struct):
        name: str = string("0+")
        partition_indexes: list[int] = array(int32, "0+")

    class WritableTxnMarker(Struct):
        producer_id: int = int64("0+")
        producer_epoch: int = int16("0+")
        transaction_result: bool = boolean("0+")
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = array("WritableTxnMarkerTopic", "0+")
        coordinator_epoch: int = int32("0+")
        transaction_version: int = int8("2+")

    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")


class WriteTxnMarkersResponse(Message, api_key=ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+"):
    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    class WritableTxnMarkerTopicResult(Struct):
        name: str = string("0+")
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = array(
            "WritableTxnMarkerPartitionResult", "0+"
        )

    class WritableTxnMarkerResult(Struct):
        producer_id: int = int64("0+")
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = array("WritableTxnMarkerTopicResult", "0+")

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")


class TxnOffsetCommitRequest(Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"):
    """v3 checks the member's generation (KIP-447); v5 adds the group to the transaction by itself (KIP-890)."""

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: int = int32("0+")
        committed_offset: int = int64("0+")
        committed_leader_epoch: int = int32("2+", default=-1)
        committed_metadata: str | None = string("0+", nullable="0+")

    class TxnOffsetCommitRequestTopic(Struct):
        name: str = string("0+")
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = array(
            "TxnOffsetCommitRequestPartition", "0+"
        )

    transactional_id: str = string("0+")
    group_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic, "0+")


class TxnOffsetCommitResponse(Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"):
    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    class TxnOffsetCommitResponseTopic(Struct):
        name: str = string("0+")
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = array(
            "TxnOffsetCommitResponsePartition", "0+"
        )

    throttle_time_ms: int = int32("0+")
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic, "0+")


class DescribeProducersRequest(Message, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"):
    """KIP-664."""

    class TopicRequest(Struct):
        name: str = string("0+")
        partition_indexes: list[int] = array(int32, "0+")

    topics: list[TopicRequest] = array(TopicRequest, "0+")


class DescribeProducersResponse(Message, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"):
    class ProducerState(Struct):
        producer_id: int = int64("0+")
        producer_epoch: int = int32("0+")
        last_sequence: int = int32("0+", default=-1)
        last_timestamp: int = int64("0+", default=-1)
        coordinator_epoch: int = int32("0+")
        current_txn_start_offset: int = int64("0+", default=-1)

    class PartitionResponse(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        active_producers: list[DescribeProducersResponse.ProducerState] = array("ProducerState", "0+")

    class TopicResponse(Struct):
        name: str = string("0+")
        partitions: list[DescribeProducersResponse.PartitionResponse] = array("PartitionResponse", "0+")

    throttle_time_ms: int = int32("0+")
    topics: list[TopicResponse] = array(TopicResponse, "0+")


class DescribeTransactionsRequest(Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    """KIP-664."""

    transactional_ids: list[str] = array(string, "0+")


class DescribeTransactionsResponse(Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    class TopicData(Struct):
        topic: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class TransactionState(Struct):
        error_code: int = int16("0+")
        transactional_id: str = string("0+")
        transaction_state: str = string("0+")
        transaction_timeout_ms: int = int32("0+")
        transaction_start_time_ms: int = int64("0+")
        producer_id: int = int64("0+")
        producer_epoch: int = int16("0+")
        topics: list[DescribeTransactionsResponse.TopicData] = array("TopicData", "0+")

    throttle_time_ms: int = int32("0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")


class ListTransactionsRequest(Message, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"):
    """v1 filters by duration (KIP-994); v2 by a pattern of ids (KIP-1152)."""

    state_filters: list[str] = array(string, "0+")
    producer_id_filters: list[int] = array(int64, "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class ListTransactionsResponse(Message, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"):
    class TransactionState(Struct):
        transactional_id: str = string("0+")
        producer_id: int = int64("0+")
        transaction_state: str = string("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = array(string, "0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")
