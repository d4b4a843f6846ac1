"""BrokerHeartbeat, ReportDeath, and the end of sessions: who may lead.

    (absent) --registration--> fenced --heartbeat, caught up--> active --wants to stop--> in controlled shutdown
                                  ^                                |                              |
                                  +-- session ended, dead, wants --+--- leads nothing, all know --+

A fenced broker leads nothing and is in no in-sync set. Becoming fenced, active or shutting down is one batch with the
elections that it brings. A broker in controlled shutdown hands its leaderships over and is told to stop when no active
broker can send a client to it any more. Directories that fail are reported here too (KIP-858).
"""

from collections.abc import Collection, Sequence

from tailrace.controller.brokers.registration import check_epoch
from tailrace.controller.brokers.sessions import Sessions
from tailrace.controller.effective import topic_config
from tailrace.controller.image import NO_LEADER, BrokerImage, MetadataImage
from tailrace.controller.partitions.change import PartitionChanges
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.wire.apis.own import ReportDeathRequest, ReportDeathResponse
from tailrace.wire.apis.quorum import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tailrace.wire.apis.stored_records import BrokerRegistrationChangeRecord
from tailrace.wire.schema import Message

_FENCE, _UNFENCE = 1, -1
_IN_CONTROLLED_SHUTDOWN = 1


def heartbeat(view: View, request: BrokerHeartbeatRequest) -> Result:
    broker = view.image.brokers.get(request.broker_id)
    error = check_epoch(broker, request.broker_epoch)
    if broker is None or error is not ErrorCode.NONE:
        return Result([], BrokerHeartbeatResponse(error_code=error))
    view.sessions.hear(broker.node_id, request.current_metadata_offset)
    has_heard_all = view.sessions.has_heard_of_fencing(broker.node_id)
    is_caught_up = has_heard_all and request.current_metadata_offset >= broker.epoch
    if broker.fenced:
        return _heartbeat_of_fenced(view, broker, request, is_caught_up=is_caught_up)
    if request.want_fence or (request.want_shut_down and _can_stop(view, broker)):
        records = _decide_fencing(view, [broker])
        response = BrokerHeartbeatResponse(is_caught_up=is_caught_up, should_shut_down=request.want_shut_down)
        return Result(records, response, is_divisible=True)
    records = _decide_offline_directories(view, broker, request)
    if request.want_shut_down and not broker.in_controlled_shutdown and not records:
        records = _decide_controlled_shutdown(view, broker)
    return Result(records, BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=False), is_divisible=True)


def note_life(image: MetadataImage, sessions: Sessions, request: BrokerHeartbeatRequest) -> None:
    """A heartbeat that cannot be answered now: its broker lives all the same."""
    broker = image.brokers.get(NodeId(request.broker_id))
    if broker is not None and check_epoch(broker, request.broker_epoch) is ErrorCode.NONE:
        sessions.hear(broker.node_id, request.current_metadata_offset)


def report_death(view: View, request: ReportDeathRequest) -> Result:
    """Proof, so that brokers are fenced at once: they can answer nobody any more. A word about an incarnation that was
    replaced since is no news. A broker that is alone is left as it is: nobody could take over.

    Those who died together are fenced together. One by one the last of them would seem to have been alone in sync, and
    if its disk is damaged the others could not be asked for what they have."""
    error, known = ErrorCode.NONE, []
    for word in request.brokers:
        broker = view.image.brokers.get(word.broker_id)
        error = check_epoch(broker, word.broker_epoch)
        if broker is not None and error is ErrorCode.NONE:
            known.append(broker)
    if not known:
        return Result([], ReportDeathResponse(error_code=error))
    dead = [broker for broker in known if not broker.fenced]
    if not dead or len(view.image.brokers) < 2:
        return Result([], ReportDeathResponse())
    for broker in dead:
        view.sessions.end(broker.node_id)
    return Result(_decide_fencing(view, dead), ReportDeathResponse(), is_divisible=True)


def decide_expired(view: View) -> list[Message]:
    """Fences all brokers whose session has ended at once: no leadership goes to one that is about to be fenced."""
    expired = view.sessions.expired(view.image)
    for node_id in expired:
        view.sessions.note_expired(node_id)
    return _decide_fencing(view, [view.image.brokers[node_id] for node_id in expired])


def _heartbeat_of_fenced(
    view: View, broker: BrokerImage, request: BrokerHeartbeatRequest, *, is_caught_up: bool
) -> Result:
    is_kept_out = view.sessions.is_kept_out(broker.node_id) and not _is_needed(view, broker)
    if request.want_shut_down or request.want_fence or not is_caught_up or is_kept_out:
        response = BrokerHeartbeatResponse(
            is_caught_up=is_caught_up, is_fenced=True, should_shut_down=request.want_shut_down
        )
        return Result(_decide_offline_directories(view, broker, request), response, is_divisible=True)
    if set(request.offline_log_dirs) & set(broker.log_dirs):
        # What lies there must not be elected; the next heartbeat finds the directories gone.
        records = _decide_offline_directories(view, broker, request)
        return Result(records, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True), is_divisible=True)
    changes = PartitionChanges(view, joining={broker.node_id})
    records = [
        BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=_UNFENCE),
        *changes.decide_all(
            (topic, index)
            for topic, index, partition in view.image.partitions_of(broker.node_id)
            if partition.leader == NO_LEADER
        ),
    ]
    return Result(records, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False), is_divisible=True)


def _is_needed(view: View, broker: BrokerImage) -> bool:
    """Whether a partition waits for it: without a leader, or with fewer replicas in sync than producers ask for."""
    wanted: dict[str, int] = {}
    for topic, _, partition in view.image.partitions_of(broker.node_id):
        if topic.name not in wanted:
            wanted[topic.name] = topic_config(view.config, view.image, topic.name).min_insync_replicas
        if partition.leader == NO_LEADER or len(partition.isr) < min(wanted[topic.name], len(partition.replicas)):
            return True
    return False


def _can_stop(view: View, broker: BrokerImage) -> bool:
    leads = any(partition.leader == broker.node_id for _, _, partition in view.image.partitions_of(broker.node_id))
    return not leads and view.sessions.has_shutdown_spread(view.image, broker.node_id)


def _decide_fencing(view: View, brokers: Sequence[BrokerImage]) -> list[Message]:
    nodes = [broker.node_id for broker in brokers]
    records: list[Message] = [
        *_decide_leaving(view, nodes),
        *(
            BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=_FENCE)
            for broker in brokers
        ),
    ]
    for node_id in nodes:
        view.sessions.note_fenced(node_id, view.image.next_offset + len(records) - 1)
    return records


def _decide_controlled_shutdown(view: View, broker: BrokerImage) -> list[Message]:
    records: list[Message] = [
        BrokerRegistrationChangeRecord(
            broker_id=broker.node_id, broker_epoch=broker.epoch, in_controlled_shutdown=_IN_CONTROLLED_SHUTDOWN
        ),
        *_decide_leaving(view, [broker.node_id]),
    ]
    view.sessions.begin_shutdown(broker.node_id, view.image.next_offset + len(records) - 1)
    return records


def _decide_leaving(view: View, nodes: Collection[NodeId]) -> Sequence[Message]:
    """The brokers leave the in-sync sets that they are in, and others lead. Each partition is looked at once."""
    changes = PartitionChanges(view, leaving=nodes)
    affected = {
        (topic.id, index): topic
        for node in nodes
        for topic, index, partition in view.image.partitions_of(node)
        if node in partition.isr
    }
    return changes.decide_all((topic, index) for (_, index), topic in affected.items())


def _decide_offline_directories(view: View, broker: BrokerImage, request: BrokerHeartbeatRequest) -> list[Message]:
    """The replicas in directories that have failed since leave the in-sync sets. The last directory is not taken away:
    without any the broker stops, and its session ends."""
    failed = [directory for directory in broker.log_dirs if directory in request.offline_log_dirs]
    working = [directory for directory in broker.log_dirs if directory not in request.offline_log_dirs]
    if not failed or not working:
        return []
    changes = PartitionChanges(view, leaving={broker.node_id})
    return [
        *changes.decide_all(
            (topic, index)
            for topic, index, partition in view.image.partitions_of(broker.node_id)
            if partition.directory(broker.node_id) in failed
        ),
        BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, log_dirs=list(working)),
    ]
