"""Requests that Kafka does not have. Their keys lie far above Kafka's.

    10,000 on   of our commands, and of brokers to brokers: brokers serve them and advertise them to nobody, so that a
                client that is not ours never meets them; a broker that is not ours closes the connection, as Kafka does
                with unknown keys
    10,100 on   of brokers to controllers, which advertise them to each other: a broker that finds them missing has to
                do with a controller of Kafka's

Declarations only, in the language of `wire.schema`.
"""

from __future__ import annotations

from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string, uuid


class DescribeGroupHistoryRequest(Message, api_key=ApiKey.DESCRIBE_GROUP_HISTORY, versions="0", flexible="0+"):
    """Why did a group rebalance? Answered by its coordinator."""

    group_id: str = string("0+")


class DescribeGroupHistoryResponse(Message, api_key=ApiKey.DESCRIBE_GROUP_HISTORY, versions="0", flexible="0+"):
    """Oldest first. The epoch is the group's, or the generation of a classic one, in which the rebalance began."""

    class Rebalance(Struct):
        at_ms: int = int64("0+")
        cause: str = string("0+")
        detail: str = string("0+")
        epoch: int = int32("0+")
        member_id: str = string("0+")
        client_id: str = string("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    rebalances: list[Rebalance] = array(Rebalance, "0+")


class DescribeGroupLagRequest(Message, api_key=ApiKey.DESCRIBE_GROUP_LAG, versions="0", flexible="0+"):
    """How far behind is a group, and does it get on? Answered by its coordinator, as of its last look."""

    group_id: str = string("0+")


class DescribeGroupLagResponse(Message, api_key=ApiKey.DESCRIBE_GROUP_LAG, versions="0", flexible="0+"):
    """Verdicts are OK, WARN, STALL, STOP and REWIND; that of the group is the worst. Empty where it is not known."""

    class Partition(Struct):
        partition_index: int = int32("0+")
        committed_offset: int = int64("0+")
        high_watermark: int = int64("0+")
        # How long ago the first record was appended that the group has not read; -1 if it is not known.
        lag_ms: int = int64("0+", default=-1)
        verdict: str = string("0+")

    class Topic(Struct):
        name: str = string("0+")
        partitions: list[DescribeGroupLagResponse.Partition] = array("Partition", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    verdict: str = string("0+")
    topics: list[Topic] = array(Topic, "0+")


class LocateOffsetsRequest(Message, api_key=ApiKey.LOCATE_OFFSETS, versions="0", flexible="0+"):
    """A coordinator asks a leader where its logs end, and how old the records at some offsets are."""

    class Partition(Struct):
        partition_index: int = int32("0+")
        offsets: list[int] = array(int64, "0+")

    class Topic(Struct):
        name: str = string("0+")
        partitions: list[LocateOffsetsRequest.Partition] = array("Partition", "0+")

    topics: list[Topic] = array(Topic, "0+")


class LocateOffsetsResponse(Message, api_key=ApiKey.LOCATE_OFFSETS, versions="0", flexible="0+"):
    """In the order of the request. Ages are by the leader's clock, so that clocks need not agree."""

    class Partition(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        high_watermark: int = int64("0+", default=-1)
        # One for each offset: 0 if there is no record yet, -1 if it is not known.
        ages_ms: list[int] = array(int64, "0+")

    class Topic(Struct):
        name: str = string("0+")
        partitions: list[LocateOffsetsResponse.Partition] = array("Partition", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[Topic] = array(Topic, "0+")


class DescribeQueueRequest(Message, api_key=ApiKey.DESCRIBE_QUEUE, versions="0", flexible="0+"):
    """What of a share group is out? Answered by each leader for its partitions."""

    group_id: str = string("0+")


class DescribeQueueResponse(Message, api_key=ApiKey.DESCRIBE_QUEUE, versions="0", flexible="0+"):
    """Partitions that some member reads now. Before the start all is done with; from the end on nothing was
    delivered."""

    class Partition(Struct):
        partition_index: int = int32("0+")
        start_offset: int = int64("0+")
        end_offset: int = int64("0+")
        # With members; kept back for a while; given up, and their dead letters are owed.
        held_count: int = int32("0+")
        delayed_count: int = int32("0+")
        dead_count: int = int32("0+")
        # Why dead letters could not be written the last time.
        failure: str | None = string("0+", nullable="0+", default=None)

    class Topic(Struct):
        name: str = string("0+")
        partitions: list[DescribeQueueResponse.Partition] = array("Partition", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    topics: list[Topic] = array(Topic, "0+")


class DescribeConnectionsRequest(Message, api_key=ApiKey.DESCRIBE_CONNECTIONS, versions="0", flexible="0+"):
    """Who is connected to this node?"""

    skip: int = int32("0+")


class DescribeConnectionsResponse(Message, api_key=ApiKey.DESCRIBE_CONNECTIONS, versions="0", flexible="0+"):
    """Some of them, in the order in which they came; who wants more asks with a larger `skip`."""

    class Connection(Struct):
        peer: str = string("0+")
        listener: str = string("0+")
        principal: str = string("0+")
        # What its client has said of itself, and when; -1 if it has not.
        client_id: str = string("0+")
        software: str = string("0+")
        connected_at_ms: int = int64("0+", default=-1)
        idle_ms: int = int64("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    total_count: int = int32("0+")
    connections: list[Connection] = array(Connection, "0+")


class DescribeSegmentsRequest(Message, api_key=ApiKey.DESCRIBE_SEGMENTS, versions="0", flexible="0+"):
    """Of which segments are the logs of this node?"""

    class Partition(Struct):
        partition_index: int = int32("0+")
        skip: int = int32("0+")

    class Topic(Struct):
        name: str = string("0+")
        partitions: list[DescribeSegmentsRequest.Partition] = array("Partition", "0+")

    topics: list[Topic] = array(Topic, "0+")


class DescribeSegmentsResponse(Message, api_key=ApiKey.DESCRIBE_SEGMENTS, versions="0", flexible="0+"):
    """Oldest first, and as many as fit; the last one is written to."""

    class Segment(Struct):
        base_offset: int = int64("0+")
        end_offset: int = int64("0+")
        size_bytes: int = int64("0+")
        created_ms: int = int64("0+")
        is_damaged: bool = boolean("0+")

    class Partition(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        log_start_offset: int = int64("0+", default=-1)
        total_count: int = int32("0+")
        segments: list[DescribeSegmentsResponse.Segment] = array("Segment", "0+")

    class Topic(Struct):
        name: str = string("0+")
        partitions: list[DescribeSegmentsResponse.Partition] = array("Partition", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[Topic] = array(Topic, "0+")


class DescribeAuditRequest(Message, api_key=ApiKey.DESCRIBE_AUDIT, versions="0", flexible="0+"):
    """Who has asked this node for a change?"""

    skip: int = int32("0+")


class DescribeAuditResponse(Message, api_key=ApiKey.DESCRIBE_AUDIT, versions="0", flexible="0+"):
    """The last lines of its audit log, newest first, and as many as fit."""

    class Line(Struct):
        at_ms: int = int64("0+")
        principal: str = string("0+")
        client_id: str = string("0+")
        host: str = string("0+")
        listener: str = string("0+")
        api: str = string("0+")
        what: str = string("0+")
        result: str = string("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    lines: list[Line] = array(Line, "0+")


class ReportReplicasRequest(Message, api_key=ApiKey.REPORT_REPLICAS, versions="0", flexible="0+"):
    """A broker tells how far its replicas reach: of partitions without a leader, and of those that it has found
    damaged. Before it is unfenced it has told all of the latter."""

    class Replica(Struct):
        partition_index: int = int32("0+")
        # What the log holds: where it starts and ends, and the leader epoch of its last batch; -1 if it has none.
        log_start_offset: int = int64("0+")
        log_end_offset: int = int64("0+")
        last_epoch: int = int32("0+", default=-1)
        # Records that this replica once had are missing.
        is_damaged: bool = boolean("0+")
        # The partition's epoch when the broker looked at the log: a later one may have changed the log.
        leader_epoch: int = int32("0+", default=-1, tag=0)

    class Topic(Struct):
        topic_id: bytes = uuid("0+")
        replicas: list[ReportReplicasRequest.Replica] = array("Replica", "0+")

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    topics: list[Topic] = array(Topic, "0+")


class ReportReplicasResponse(Message, api_key=ApiKey.REPORT_REPLICAS, versions="0", flexible="0+"):
    """Those of the damaged replicas that may lead all the same, because there is nobody else."""

    class Topic(Struct):
        topic_id: bytes = uuid("0+")
        irreplaceable_partitions: list[int] = array(int32, "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[Topic] = array(Topic, "0+")


class AllowTruncationRequest(Message, api_key=ApiKey.ALLOW_TRUNCATION, versions="0", flexible="0+"):
    """A follower finds that its leader lacks records below the follower's own high watermark. May it cut them off?"""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    topic_id: bytes = uuid("0+")
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")


class AllowTruncationResponse(Message, api_key=ApiKey.ALLOW_TRUNCATION, versions="0", flexible="0+"):
    """NONE if it may; NEW_LEADER_ELECTED if its records count, and the leader has to go."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


class MoveLeaderRequest(Message, api_key=ApiKey.MOVE_LEADER, versions="0", flexible="0+"):
    """The leader of a partition cannot read a part of its log, and names an in-sync replica that can: that one is to
    lead. Asked of the active controller."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    topic_id: bytes = uuid("0+")
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_leader_id: int = int32("0+")


class MoveLeaderResponse(Message, api_key=ApiKey.MOVE_LEADER, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class ReportDeathRequest(Message, api_key=ApiKey.REPORT_DEATH, versions="0", flexible="0+"):
    """The processes of these incarnations of brokers are dead: who says so has seen them die, and has found the epochs
    in their data folders while it held their locks. Asked of the active controller."""

    class Broker(Struct):
        broker_id: int = int32("0+")
        broker_epoch: int = int64("0+")

    brokers: list[Broker] = array(Broker, "0+")


class ReportDeathResponse(Message, api_key=ApiKey.REPORT_DEATH, versions="0", flexible="0+"):
    """STALE_BROKER_EPOCH if none of them is registered as that incarnation any more."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
