"""Metadata, DescribeCluster, DescribeTopicPartitions: who is there and who leads what, from the published image.

A request for the metadata of a missing topic creates it if auto.create.topics.enable and the request allow it. The
answer waits a moment for the creation, and then mostly has the topic in it; else it says that there is none, as Kafka's
always does, and the client asks again. Internal topics are created as their coordinators do. A large answer is put
together in slices, by the image of the moment at which it was begun, and one of them at a time.
Without an authorizer everyone may do everything, and the fields of authorized operations say so.

Version notes of Metadata: 0 asks for all topics by an empty list, later ones by null; 4 adds the permission to
create; 6 names a missing listener instead of LEADER_NOT_AVAILABLE; 12 asks by topic id (a request does so for all its
topics or none); authorized operations of the cluster moved to DescribeCluster with version 11.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Collection, Coroutine, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tailrace.broker.handlers.leader_hints import sends_away
from tailrace.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from tailrace.controller.names import check_topic_name
from tailrace.model.acls import OPERATIONS, Kind, Operation, bit_field
from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    ZERO_UUID,
    Uuid,
)
from tailrace.wire.apis.admin import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services

_ResponseTopic = MetadataResponse.MetadataResponseTopic
_ResponsePartition = MetadataResponse.MetadataResponsePartition
_DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_DescribedPartition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition

ALL_TOPIC_OPERATIONS = bit_field(OPERATIONS[Kind.TOPIC])
ALL_CLUSTER_OPERATIONS = bit_field(OPERATIONS[Kind.CLUSTER])
_BROKERS_ENDPOINT = 1
_CONTROLLERS_ENDPOINT = 2
_NO_NODE = -1
# Topics and partitions that are told of without a pause, and those in a slice, about a millisecond.
_AT_ONCE_MAX = 1000
_SLICE = 200
# What an automatic creation may tell a client, even if the topic is there by then; for the rest it asks again.
_TOLD_ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.POLICY_VIOLATION,
)


# The metadata log is no topic, and transactions have no coordinator yet.
_NOT_CREATED = (CLUSTER_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC)


class _Leader(NamedTuple):
    error_code: ErrorCode
    node_id: int


def handle_metadata(
    services: Services, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    asked = request.topics
    version = context.api_version
    if asked is None or (version == 0 and not asked):
        return _respond(services, context, request, services.image.topics.values())
    if version < 12 and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in asked):
        # Versions 10 and 11 have a field for the id, which does not work yet.
        wrong = [_ResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "") for topic in asked]
        return MetadataResponse(topics=wrong)
    ids = [Uuid(topic.topic_id) for topic in asked if topic.topic_id != ZERO_UUID]
    if ids:
        return _respond(services, context, request, _find_by_id(services.image, ids))
    names = list(dict.fromkeys(topic.name for topic in asked if topic.name is not None))
    if request.allow_auto_topic_creation and services.config.auto_create_topics_enable:
        missing = [name for name in names if name not in services.image.topics and _may_be_created(name)]
        if missing:
            return _create_and_respond(services, context, request, names, missing)
    return _respond(services, context, request, _find_by_name(services.image, names, {}))


async def _create_and_respond(
    services: Services, context: RequestContext, request: MetadataRequest, names: list[str], missing: list[str]
) -> MetadataResponse:
    failed = await services.coordination.creations.wait(missing)
    errors = {name: error.code for name, error in failed.items() if error.code in _TOLD_ERRORS}
    answer = _respond(services, context, request, _find_by_name(services.image, names, errors))
    if not isinstance(answer, MetadataResponse):
        answer = await answer
    charge = services.meters.mutations(context)
    if charge is not None:
        made = [topic for name in missing if (topic := services.image.topics.get(name)) is not None]
        charge(sum(len(topic.partitions) for topic in made))
        answer.throttle_time_ms = charge.throttle_ms
    return answer


def _may_be_created(name: str) -> bool:
    return name not in _NOT_CREATED and _missing_error(name) is not _INVALID_NAME


_INVALID_NAME = ErrorCode.INVALID_TOPIC_EXCEPTION


def _missing_error(name: str) -> ErrorCode:
    """Why a topic is not there: its name cannot be, or it simply is not."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# A topic, or what is to be told instead of one that is not there.
_Found = TopicImage | _ResponseTopic


def _find_by_name(image: MetadataImage, names: Iterable[str], errors: dict[str, ErrorCode]) -> list[_Found]:
    found: list[_Found] = []
    for name in names:
        topic = image.topics.get(name)
        if topic is not None and name not in errors:
            found.append(topic)
        else:
            error = errors.get(name) or _missing_error(name)
            found.append(_ResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS))
    return found


def _find_by_id(image: MetadataImage, ids: Iterable[Uuid]) -> list[_Found]:
    return [
        image.topic_by_id(topic_id)
        or _ResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        for topic_id in dict.fromkeys(ids)
    ]


def _respond(
    services: Services, context: RequestContext, request: MetadataRequest, found: Collection[_Found]
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    image, listener_name = services.image, context.listener.name
    # While all are fenced, as when the first of a dead cluster comes back, nobody would be left. Told of no broker at
    # all, librdkafka gives up those that it knows and never asks again; the Java client takes no notice.
    reachable = list(reachable_brokers(image, listener_name)) or reachable_brokers(
        image, listener_name, include_fenced=True
    )
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack
            )
            for node, endpoint in reachable
        ],
        cluster_id=image.cluster_id,
        controller_id=_controller_id(services, image),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _cluster_operations(services, context)
    steps = _Cluster(services, context).describe(found, response.topics)
    if request.include_topic_authorized_operations:
        steps = _with_operations(services, context, steps, response.topics)
    if _is_large(found):
        return _respond_slowly(services, steps, response)
    for _ in steps:
        pass
    return response


def _is_large(found: Collection[_Found]) -> bool:
    if len(found) > _AT_ONCE_MAX:
        return True
    return sum(len(topic.partitions) for topic in found) > _AT_ONCE_MAX


async def _respond_slowly(services: Services, steps: Iterable[None], response: MetadataResponse) -> MetadataResponse:
    """One such answer at a time: a crowd that asks for them has one slice of each turn, not one each."""
    async with services.large_answers:
        for _ in steps:
            await sleep(0)
    return response


def _with_operations(
    services: Services,
    context: RequestContext,
    steps: Iterable[None],
    topics: list[MetadataResponse.MetadataResponseTopic],
) -> Iterator[None]:
    done = 0
    for _ in chain(steps, (None,)):
        for topic in topics[done:]:
            if topic.name is not None or services.access is None:
                topic.topic_authorized_operations = _topic_operations(services, context, topic.name or "")
        done = len(topics)
        yield


def _topic_operations(services: Services, context: RequestContext, name: str) -> int:
    return ALL_TOPIC_OPERATIONS if services.access is None else services.access.operations(context, Kind.TOPIC, name)


def _cluster_operations(services: Services, context: RequestContext) -> int:
    access = services.access
    if access is None:
        return ALL_CLUSTER_OPERATIONS
    may_describe = access.may(context, Operation.DESCRIBE, Kind.CLUSTER, api_key=context.api_key)
    return access.operations(context, Kind.CLUSTER) if may_describe else 0


def reachable_brokers(
    image: MetadataImage, listener_name: str, *, include_fenced: bool = False
) -> Iterator[tuple[BrokerImage, Endpoint]]:
    """Brokers that clients may be sent to, with their address on the listener that the client uses."""
    for _, node in sorted(image.brokers.items()):
        endpoint = node.endpoint(listener_name)
        if endpoint is not None and (include_fenced or not node.fenced):
            yield node, endpoint


def _controller_id(services: Services, image: MetadataImage) -> int:
    """A live broker: admin requests may go to any, and this one is known to work for the client."""
    own = image.brokers.get(services.node_id)
    if own is not None and not own.fenced:
        return services.node_id
    return min((node.node_id for node in image.brokers.values() if not node.fenced), default=_NO_NODE)


class _Cluster:
    """The image as one client sees it: through its listener, in its version."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self.image = services.image
        self._services, self._context = services, context
        # Partitions that are led by this broker: for sure, and those of which it does not know.
        self._led_count = self._doubted_count = 0
        self._alive = {node.node_id for node in self.image.brokers.values() if not node.fenced}
        self._reachable = {node.node_id for node, _ in reachable_brokers(self.image, context.listener.name)}
        self._version = context.api_version

    def describe(self, found: Iterable[_Found], topics: list[_ResponseTopic]) -> Iterator[None]:
        """Fills `topics`, and stops after each slice."""
        room = _SLICE
        for topic in found:
            room -= 1
            if room <= 0:
                room = _SLICE
                yield
            if isinstance(topic, _ResponseTopic):
                topics.append(topic)
                continue
            partitions: list[MetadataResponse.MetadataResponsePartition] = []
            is_internal = topic.name in INTERNAL_TOPICS
            topics.append(
                _ResponseTopic(name=topic.name, topic_id=topic.id, is_internal=is_internal, partitions=partitions)
            )
            for index, partition in topic.partitions.items():
                partitions.append(self._partition(topic.name, index, partition))
                room -= 1
                if room <= 0:
                    room = _SLICE
                    yield
        # Cut off, and of no use to this client, which would ask here again: it may have no other connection.
        self._context.is_last = bool(self._doubted_count) and not self._led_count

    def _partition(self, topic: str, index: int, partition: PartitionImage) -> _ResponsePartition:
        missing = ErrorCode.LISTENER_NOT_FOUND if self._version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        error, leader = self.leader(topic, index, partition, missing)
        replicas, isr = list(partition.replicas), list(partition.isr)
        if self._version == 0:
            # Version 0 cannot tell of offline replicas, so it leaves them out and says that it did.
            if error is ErrorCode.NONE and not self._reachable.issuperset(replicas):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
            replicas = [node for node in replicas if node in self._reachable]
            isr = [node for node in isr if node in self._reachable]
        return _ResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=cast("list[int]", replicas),
            isr_nodes=cast("list[int]", isr),
            offline_replicas=self.offline(partition),
        )

    def leader(self, topic: str, index: int, partition: PartitionImage, missing_listener: ErrorCode) -> _Leader:
        if partition.leader == self._services.node_id:
            if sends_away(self._services, topic, index):
                self._doubted_count += 1
                return _Leader(ErrorCode.LEADER_NOT_AVAILABLE, _NO_NODE)
            self._led_count += 1
        if partition.leader in self._reachable:
            return _Leader(ErrorCode.NONE, partition.leader)
        if partition.leader in self._alive:
            return _Leader(missing_listener, _NO_NODE)
        return _Leader(ErrorCode.LEADER_NOT_AVAILABLE, _NO_NODE)

    def offline(self, partition: PartitionImage) -> list[int]:
        """On brokers that are dead, or in data folders that have failed."""
        return [
            node
            for node in partition.replicas
            if node not in self._alive or not self.image.brokers[node].has_online(partition.directory(node))
        ]

    def describe_partition(self, topic: str, index: int, partition: PartitionImage) -> _DescribedPartition:
        error, leader = self.leader(topic, index, partition, ErrorCode.LISTENER_NOT_FOUND)
        return _DescribedPartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=list(partition.eligible_leader_replicas),
            last_known_elr=list(partition.last_known_elr),
            offline_replicas=self.offline(partition),
        )


def handle_describe_cluster(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    image = services.image
    if context.listener.is_controller and request.endpoint_type == _CONTROLLERS_ENDPOINT:
        return _describe_controllers(services, context, request)
    if context.listener.is_controller or request.endpoint_type != _BROKERS_ENDPOINT:
        return _refuse_endpoint_type(request.endpoint_type)
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=_controller_id(services, image),
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack, is_fenced=node.fenced
            )
            for node, endpoint in reachable_brokers(
                image, context.listener.name, include_fenced=request.include_fenced_brokers
            )
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _cluster_operations(services, context)
    return response


def _describe_controllers(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Asked of a controller, it tells of the controllers that have registered (KIP-919)."""
    image = services.image
    response = DescribeClusterResponse(
        endpoint_type=_CONTROLLERS_ENDPOINT,
        cluster_id=image.cluster_id,
        controller_id=services.quorum.leadership.leader_id,
    )
    for node_id, controller in sorted(image.controllers.items()):
        for name, host, port in controller.endpoints:
            if name == context.listener.name:
                response.brokers.append(
                    DescribeClusterResponse.DescribeClusterBroker(broker_id=node_id, host=host, port=port)
                )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _cluster_operations(services, context)
    return response


def _refuse_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type in (_BROKERS_ENDPOINT, _CONTROLLERS_ENDPOINT):
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        served, wanted = (
            ("BROKER", "CONTROLLER") if endpoint_type == _CONTROLLERS_ENDPOINT else ("CONTROLLER", "BROKER")
        )
        message = f"The request was sent to an endpoint of type {served}, but we wanted an endpoint of type {wanted}"
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=message)


def handle_describe_topic_partitions(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics by name from the cursor on, until the limit of partitions is reached; then the next cursor is given."""
    cluster = _Cluster(services, context)
    cursor = request.cursor
    wanted = {topic.name for topic in request.topics} or _all_described(services, context)
    names = sorted(name for name in wanted if cursor is None or name >= cursor.topic_name)
    is_wrong = cursor is not None and (
        cursor.partition_index < 0 or (request.topics and cursor.topic_name not in wanted)
    )
    response = DescribeTopicPartitionsResponse()
    if is_wrong:
        response.topics = [
            _DescribedTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name) for topic in request.topics
        ]
        return response
    limit = min(services.config.max_request_partition_size_limit, request.response_partition_limit)
    remaining = max(1, limit)
    for name in names:
        if remaining == 0:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=0)
            break
        topic = cluster.image.topics.get(name)
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        described = _describe_topic(cluster, name, topic, start, remaining)
        described.topic_authorized_operations = _topic_operations(services, context, name)
        response.topics.append(described)
        remaining -= len(described.partitions)
        if topic is not None and start + len(described.partitions) < len(topic.partitions):
            end = start + len(described.partitions)
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=end)
            break
    return response


def _all_described(services: Services, context: RequestContext) -> Collection[str]:
    """The names of all topics that whoever asks may describe."""
    names, access = services.image.topics.keys(), services.access
    if access is None:
        return names
    return [name for name in names if access.may(context, Operation.DESCRIBE, Kind.TOPIC, name, is_logged=False)]


def _describe_topic(
    cluster: _Cluster, name: str, topic: TopicImage | None, start: int, limit: int
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    described = _DescribedTopic(name=name, is_internal=name in INTERNAL_TOPICS)
    if topic is None:
        described.error_code = _missing_error(name)
        return described
    described.topic_id = topic.id
    described.partitions = [
        cluster.describe_partition(name, index, topic.partitions[index])
        for index in range(start, min(start + limit, len(topic.partitions)))
    ]
    return described
