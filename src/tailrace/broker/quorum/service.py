"""The requests of the quorum, as peers and admin clients send them: asked of the node, answered in kind.

A Fetch that finds nothing new waits here for records or a higher high watermark, up to its own limit; the node counts
it as a sign of life once, when it came. How old that sign may be is for `Answered` to say: a request that a network
held back for long looks no different from a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC
from tailrace.model.ports import Clock
from tailrace.raft.leader import OBSERVER_SESSION_MS, Leader, Progress
from tailrace.raft.messages import Fetch, Fetched, Reply
from tailrace.raft.translation import of_wire_request, refuse, the_partition, to_wire_response
from tailrace.raft.types import ReplicaKey
from tailrace.wire.apis.data import FetchRequest
from tailrace.wire.apis.quorum import DescribeQuorumRequest, DescribeQuorumResponse, FetchSnapshotRequest
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.quorum.driver import RaftDriver


# More than a cluster has nodes. The next request on a connection that was forgotten proves nothing, the one after does.
_CONNECTIONS_MAX = 1000


class Answered:
    """When each connection was last answered: what comes on it next was sent after that."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By the address at the other end, longest ago first.
        self._answered_ms: dict[str, float] = {}

    @contextmanager
    def question(self, peer: str) -> Iterator[float]:
        """Around the answering of a request. Gives the moment after which it was sent, -inf if nothing is known."""
        yield self._answered_ms.pop(peer, -inf)
        if len(self._answered_ms) >= _CONNECTIONS_MAX:
            del self._answered_ms[next(iter(self._answered_ms))]
        self._answered_ms[peer] = self._clock.monotonic_ms()


async def handle(driver: RaftDriver, request: Message, listener_name: str, after_ms: float) -> Message:
    if isinstance(request, DescribeQuorumRequest):
        return _describe(driver, request)
    cluster_id = getattr(request, "cluster_id", None)
    if cluster_id is not None and cluster_id != driver.cluster_id:
        return refuse(request, ErrorCode.INCONSISTENT_CLUSTER_ID)
    asked = of_wire_request(request, own_id=driver.key.id)
    if asked is None:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    try:
        reply = await driver.ask(asked, after_ms)
        if isinstance(request, FetchRequest) and isinstance(asked, Fetch):
            reply = await _wait_fetched(driver, request, asked, reply)
    except KafkaError as error:
        return refuse(request, error.code)
    if isinstance(request, FetchSnapshotRequest):
        from tailrace.broker.quorum.snapshot_transfer import answer_piece

        return answer_piece(driver, request, reply)
    return to_wire_response(request, _as_reached(driver, reply, listener_name))


def _as_reached(driver: RaftDriver, reply: Reply, listener_name: str) -> Reply:
    """With the leader's address at the listener that the question came in by: at another one the asker may not know how
    to speak, as while a quorum moves from a listener without TLS to one with it."""
    leader = driver.voters.find(reply.leader_id)
    endpoint = leader.endpoint(listener_name) if leader is not None else None
    if endpoint is None or endpoint.listener_name != listener_name:
        return reply
    return reply._replace(endpoint=endpoint)


async def _wait_fetched(driver: RaftDriver, request: FetchRequest, asked: Fetch, reply: Reply) -> Reply:
    clock = driver.ports.clock
    deadline_ms = clock.monotonic_ms() + request.max_wait_ms
    while _is_nothing_new(driver, asked, reply) and clock.monotonic_ms() < deadline_ms:
        await driver.wait_change(deadline_ms - clock.monotonic_ms())
        reply = await driver.ask_again(asked)
    fetched = reply.fetched
    if fetched is None or not _is_valid(fetched) or asked.offset >= driver.log.end_offset:
        return reply
    max_bytes = min(request.max_bytes, the_partition(request).partition_max_bytes)
    records = driver.log.read(asked.offset, max_bytes, driver.log.end_offset)
    return reply if records is None else reply._replace(fetched=fetched._replace(records=records))


def _is_nothing_new(driver: RaftDriver, asked: Fetch, reply: Reply) -> bool:
    fetched = reply.fetched
    return (
        fetched is not None
        and _is_valid(fetched)
        and asked.offset >= driver.log.end_offset
        and asked.high_watermark >= fetched.high_watermark
    )


def _is_valid(fetched: Fetched) -> bool:
    return fetched.diverging is None and fetched.snapshot is None


def _describe(driver: RaftDriver, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if the_partition(request) is None:
        return DescribeQuorumResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leadership, leader = driver.leadership, driver.node.role
    partition = DescribeQuorumResponse.PartitionData(leader_id=leadership.leader_id, leader_epoch=leadership.epoch)
    response = DescribeQuorumResponse(
        topics=[DescribeQuorumResponse.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
    )
    if not driver.is_leader or not isinstance(leader, Leader):
        partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if driver.node.must_catch_up:
            partition.error_message = "This voter lost metadata records, and has no vote until it has caught up."
        return response
    partition.high_watermark = driver.high_watermark
    voters = driver.voters
    partition.current_voters = [_replica_state(driver, leader, voter.key) for voter in voters]
    since_ms = driver.ports.clock.monotonic_ms() - OBSERVER_SESSION_MS
    partition.observers = [
        _replica_state(driver, leader, key)
        for key, progress in sorted(leader.replicas.items())
        if not voters.contains(key) and progress.last_fetch_ms >= since_ms
    ]
    response.nodes = [
        DescribeQuorumResponse.Node(
            node_id=voter.key.id,
            listeners=[
                DescribeQuorumResponse.Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints
            ],
        )
        for voter in voters
    ]
    return response


def _replica_state(driver: RaftDriver, leader: Leader, key: ReplicaKey) -> DescribeQuorumResponse.ReplicaState:
    clock = driver.ports.clock
    now_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
    progress = leader.replicas.get(key, Progress())
    if key == driver.key:
        progress = Progress(driver.log.end_offset, now_ms, now_ms)
    return DescribeQuorumResponse.ReplicaState(
        replica_id=key.id,
        replica_directory_id=key.directory_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=_wall(progress.last_fetch_ms, now_ms, wall_ms),
        last_caught_up_timestamp=_wall(progress.last_caught_up_ms, now_ms, wall_ms),
    )


def _wall(time_ms: float, now_ms: float, wall_ms: int) -> int:
    return -1 if time_ms == -inf else int(wall_ms - (now_ms - time_ms))
