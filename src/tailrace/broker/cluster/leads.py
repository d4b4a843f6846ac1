"""Joins the repair of damaged logs to the other brokers and to the controller, which moves a lead.

A lead is moved by `wire.apis.own.MoveLeaderRequest`, or lost by a ReportReplicasRequest. Kafka's controllers do not
advertise them: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tailrace.broker.node import Node
    from tailrace.model.ids import NodeId
    from tailrace.replica.maintenance import Maintenance
    from tailrace.replica.partition import Partition

# A controller that knows the request answers within milliseconds; after this it is taken for one that does not.
_TIMEOUT_MS = 5000


async def scrub(node: Node, maintenance: Maintenance) -> None:
    """Until it is cancelled; from half a minute after the start on, so that a broker is ready without what it needs."""
    await asyncio.sleep(node.config.log_initial_task_delay_ms / 1000)
    from tailrace.replica.repair.upkeep import Scrubbing

    is_alone = node.peers is None
    scrubbing = Scrubbing(
        node.replicas,
        node.ports,
        call=None if is_alone else node.call_broker,
        move_lead=None if is_alone else partial(move_lead, node),
        call_damaged=None if is_alone else partial(call_damaged, node),
        is_compacting=maintenance.is_compacting,
    )
    await scrubbing.run()


async def move_lead(node: Node, partition: Partition, node_id: NodeId) -> None:
    """Raises KafkaError if it was not done."""
    from tailrace.wire.apis.own import MoveLeaderRequest, MoveLeaderResponse

    request = MoveLeaderRequest(
        broker_id=partition.node_id,
        broker_epoch=node.broker_epoch(),
        topic_id=bytes(partition.topic_id),
        partition_index=partition.topic_partition.partition,
        leader_epoch=partition.leader_epoch,
        new_leader_id=node_id,
    )
    response = await node.forwarding.ask(request, MoveLeaderResponse, timeout_ms=_TIMEOUT_MS, channel="move leader")
    if response.error_code:
        code = ErrorCode(response.error_code)
        raise KafkaError(code, response.error_message or f"the controller answered {code.name}")


async def call_damaged(node: Node, partition: Partition) -> None:
    """Raises KafkaError if the controller was not told."""
    from tailrace.wire.apis.own import ReportReplicasRequest, ReportReplicasResponse

    log = partition.log
    replica = ReportReplicasRequest.Replica(
        partition_index=partition.topic_partition.partition,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.damaged_ranges[0].start_offset,
        last_epoch=log.epochs.latest,
        is_damaged=True,
    )
    request = ReportReplicasRequest(
        broker_id=partition.node_id,
        broker_epoch=node.broker_epoch(),
        topics=[ReportReplicasRequest.Topic(topic_id=bytes(partition.topic_id), replicas=[replica])],
    )
    response = await node.forwarding.ask(request, ReportReplicasResponse, timeout_ms=_TIMEOUT_MS, channel="reports")
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), f"the controller answered {response.error_code}")
