"""The catalogue of APIs: one row for each, with all that the parts of a node have to agree on.

    versions, listeners   which versions are served to clients, which to other nodes of the metadata quorum: ApiVersions
                          advertises just that
    answered by           who decides: this node, the active controller, the quorum's leader, a coordinator
    handler               the function that serves it, in broker/handlers; its name begins with `handle_`
    op                    the pure function that decides, in controller/ or coordinator/, for whom others answer
    failure               how it is refused as a whole: where the error code stands in its answer; see broker/failures
    is_forwardable        whether a broker hands it on to the controller for a client, in an Envelope
    before, after,        steps of its own on the way of a request; see broker/serving/dispatch
    measures

A new API that the controller answers is a row here, a handler where `handle_by_controller` does not do, and an op.
Modules are named, not imported: they are loaded with their first request, so that a start does not pay for them.

Not here are APIs that do not work yet: clients call whatever is advertised (telemetry, share groups, tokens).
"""

from collections.abc import Callable
from enum import Enum
from importlib import import_module
from typing import Any, NamedTuple

from tailrace.wire.apis.keys import ApiKey

Versions = tuple[int, int]  # the lowest and the highest
# How it is refused as a whole: at the top, in the items of arrays, or by a function. See broker/failures.
Form = tuple[str, ...] | str


class AnsweredBy(Enum):
    THIS_NODE = "this node"
    CONTROLLER = "the active controller"
    QUORUM = "the leader of the metadata quorum"
    GROUPS = "the coordinator of a group"
    TRANSACTIONS = "the coordinator of a transactional id"


class Audience(Enum):
    """Where a request comes in."""

    CLIENTS = "a listener of clients"
    CONTROLLERS = "a listener of the metadata quorum"
    FORWARDED = "in an Envelope"


class Served(NamedTuple):
    """On one kind of listeners: the versions (both inclusive, as on the wire) and the function that does it."""

    version_min: int
    version_max: int
    handler: str


class Api(NamedTuple):
    key: ApiKey
    # By listeners of clients, and by those of the metadata quorum; None where it is not served.
    for_clients: Served | None = None
    for_controllers: Served | None = None
    answered_by: AnsweredBy = AnsweredBy.THIS_NODE
    op: str = ""
    failure: Form = ()
    is_forwardable: bool = False
    # The lowest version that is advertised, where it is not the lowest that is served.
    advertised_min: int | None = None

    # Functions, by their full names: who may ask and who must wait; what an answer has cost; what all of it has taken.
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()

    def served_to(self, audience: Audience) -> Served | None:
        match audience:
            case Audience.CLIENTS:
                return self.for_clients
            case Audience.CONTROLLERS:
                return self.for_controllers
            case Audience.FORWARDED:
                return self.for_controllers if self.is_forwardable else None


def _this_node(key: ApiKey, versions: Versions, handler: str, failure: Form = ()) -> Api:
    return Api(key, for_clients=Served(*versions, handler), failure=failure)


def _controller(key: ApiKey, versions: Versions, op: str, *, failure: Form = ()) -> Api:
    """Asked of any broker, which hands it on, or of a controller itself (KIP-919)."""
    served = Served(*versions, "admin.controller.by_controller")
    return Api(key, served, served, AnsweredBy.CONTROLLER, op, failure, is_forwardable=True)


def _node_to_controller(key: ApiKey, versions: Versions, op: str) -> Api:
    """Asked by other nodes alone."""
    served = Served(*versions, "admin.controller.by_controller")
    return Api(key, for_controllers=served, answered_by=AnsweredBy.CONTROLLER, op=op)


def _quorum(key: ApiKey, versions: Versions, handler: str = "quorum.by_raft") -> Api:
    return Api(key, for_controllers=Served(*versions, handler), answered_by=AnsweredBy.QUORUM)


def _quorum_admin(key: ApiKey, versions: Versions) -> Api:
    return Api(
        key,
        Served(*versions, "admin.controller.by_quorum"),
        Served(*versions, "quorum.by_raft"),
        AnsweredBy.QUORUM,
        is_forwardable=True,
    )


def _group(key: ApiKey, versions: Versions, handler: str, op: str, failure: Form = ()) -> Api:
    return Api(key, Served(*versions, f"groups.{handler}"), None, AnsweredBy.GROUPS, op, failure)


def _transaction(key: ApiKey, versions: Versions, handler: str, op: str, failure: Form = "of_transaction") -> Api:
    served = Served(*versions, f"transactions.{handler}")
    return Api(key, served, None, AnsweredBy.TRANSACTIONS, f"transactions.{op}", failure)


_PARTITIONS = ("topics", "partitions")
_ROWS = (
    # ---- records, and what is known of them
    # librdkafka turns compression on only if Produce is advertised from version 0 (KAFKA-18659): so it is, and requests
    # of versions 0 to 2 close the connection, as in Kafka 4.
    Api(ApiKey.PRODUCE, Served(3, 13, "produce.produce"), failure="of_produce", advertised_min=0),
    Api(ApiKey.FETCH, Served(4, 18, "fetch.fetch"), Served(17, 18, "quorum.by_raft"), failure="of_fetch"),
    _this_node(ApiKey.LIST_OFFSETS, (1, 11), "offsets.list_offsets", _PARTITIONS),
    _this_node(ApiKey.DELETE_RECORDS, (0, 2), "offsets.delete_records", "of_delete_records"),
    _this_node(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), "offsets.offset_for_leader_epoch", _PARTITIONS),
    # ---- what a client has to know first
    Api(ApiKey.API_VERSIONS, Served(0, 4, "api_versions.api_versions"), Served(0, 4, "api_versions.api_versions")),
    _this_node(ApiKey.METADATA, (0, 13), "metadata.metadata", "of_metadata"),
    _this_node(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), "metadata.describe_topic_partitions", ("topics",)),
    Api(ApiKey.DESCRIBE_CLUSTER, Served(0, 2, "metadata.describe_cluster"), Served(0, 2, "metadata.describe_cluster")),
    _this_node(ApiKey.FIND_COORDINATOR, (0, 6), "coordinators.find_coordinator", "of_find_coordinator"),
    # ---- groups
    _group(ApiKey.OFFSET_COMMIT, (2, 10), "offsets.offset_commit", "offsets.commit.commit_offsets", _PARTITIONS),
    _group(ApiKey.OFFSET_FETCH, (1, 10), "offsets.offset_fetch", "offsets.fetch.fetch_offsets", "of_offset_fetch"),
    _group(ApiKey.OFFSET_DELETE, (0, 0), "offsets.offset_delete", "offsets.deletion.delete_offsets"),
    _group(ApiKey.JOIN_GROUP, (0, 9), "membership.join_or_sync", "classic.join.join_group", "of_join_group"),
    _group(ApiKey.SYNC_GROUP, (0, 5), "membership.join_or_sync", "classic.sync.sync_group"),
    _group(ApiKey.HEARTBEAT, (0, 4), "membership.heartbeat_or_leave", "classic.heartbeat.heartbeat", "of_heartbeat"),
    _group(ApiKey.LEAVE_GROUP, (0, 5), "membership.heartbeat_or_leave", "classic.leave.leave_group", "of_leave_group"),
    _group(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), "membership.consumer_group_heartbeat", "consumers.heartbeat.heartbeat"
    ),
    _group(
        ApiKey.DESCRIBE_GROUPS,
        (0, 6),
        "listing.describe_groups",
        "listing.describe_group",
        ("groups > groups.group_id",),
    ),
    _group(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (0, 1),
        "listing.consumer_group_describe",
        "consumers.description.describe_group",
        ("group_ids > groups.group_id",),
    ),
    _group(
        ApiKey.DELETE_GROUPS,
        (0, 2),
        "listing.delete_groups",
        "listing.delete_group",
        ("groups_names > results.group_id",),
    ),
    Api(
        ApiKey.TXN_OFFSET_COMMIT,
        Served(0, 5, "transactions.producing.txn_offset_commit"),
        answered_by=AnsweredBy.GROUPS,
        op="offsets.transactional.commit_transactional_offsets",
        failure=_PARTITIONS,
    ),
    # These tell of all groups of this broker, and of what its coordinators have seen.
    _this_node(ApiKey.LIST_GROUPS, (0, 5), "groups.listing.list_groups"),
    _this_node(ApiKey.DESCRIBE_GROUP_HISTORY, (0, 0), "groups.history.describe_group_history"),
    # ---- transactions
    _transaction(ApiKey.INIT_PRODUCER_ID, (0, 5), "producing.init_producer_id", "beginning.init_producer_id"),
    _transaction(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), "producing.add_partitions_to_txn", "partitions.add_partitions"),
    _transaction(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), "producing.of_transaction", "partitions.add_offsets"),
    _transaction(ApiKey.END_TXN, (0, 5), "producing.of_transaction", "ending.end_transaction"),
    _transaction(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (0, 0),
        "listing.describe_transactions",
        "listing.describe_transaction",
        ("transactional_ids > transaction_states.transactional_id",),
    ),
    _this_node(ApiKey.LIST_TRANSACTIONS, (0, 2), "transactions.listing.list_transactions"),
    _this_node(
        ApiKey.DESCRIBE_PRODUCERS,
        (0, 0),
        "transactions.listing.describe_producers",
        ("topics", "partition_indexes > partitions.partition_index"),
    ),
    _this_node(
        ApiKey.WRITE_TXN_MARKERS,
        (1, 2),
        "transactions.markers.write_txn_markers",
        ("markers", "topics", "partition_indexes > partitions.partition_index"),
    ),
    # ---- topics, settings and the cluster
    _controller(ApiKey.CREATE_TOPICS, (2, 7), "topics.create_topics", failure=("topics",)),
    _controller(ApiKey.DELETE_TOPICS, (1, 6), "topics.delete_topics", failure="of_delete_topics"),
    _controller(
        ApiKey.CREATE_PARTITIONS, (0, 3), "partitions.creation.create_partitions", failure=("topics > results",)
    ),
    _controller(ApiKey.ALTER_CONFIGS, (0, 2), "configs.alter_configs", failure=("resources > responses",)),
    _controller(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        (0, 1),
        "configs.incremental_alter_configs",
        failure=("resources > responses",),
    ),
    _controller(
        ApiKey.ELECT_LEADERS,
        (0, 2),
        "partitions.elections.elect_leaders",
        failure=("topic_partitions > replica_election_results", "partitions > partition_result.partition_id"),
    ),
    _controller(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        (0, 1),
        "partitions.reassignment.alter_partition_reassignments",
        failure=("topics > responses", "partitions"),
    ),
    _controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), "partitions.reassignment.list_partition_reassignments"),
    _controller(ApiKey.UPDATE_FEATURES, (0, 2), "feature_updates.update_features"),
    _controller(ApiKey.UNREGISTER_BROKER, (0, 0), "brokers.membership.unregister_broker"),
    Api(
        ApiKey.DESCRIBE_CONFIGS,
        Served(1, 4, "admin.configs.describe_configs"),
        Served(1, 4, "admin.configs.describe_configs"),
        failure=("resources > results",),
    ),
    _this_node(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), "admin.configs.list_config_resources"),
    _this_node(ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), "log_dirs.alter_replica_log_dirs", "of_alter_replica_log_dirs"),
    _this_node(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), "log_dirs.describe_log_dirs"),
    # ---- between brokers and controllers
    Api(ApiKey.ENVELOPE, for_controllers=Served(0, 0, "admin.controller.envelope")),
    _node_to_controller(ApiKey.ALTER_PARTITION, (2, 3), "partitions.alter_partition.alter_partition"),
    _node_to_controller(ApiKey.BROKER_REGISTRATION, (0, 4), "brokers.registration.register_broker"),
    _node_to_controller(ApiKey.BROKER_HEARTBEAT, (0, 2), "brokers.heartbeats.heartbeat"),
    _node_to_controller(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), "brokers.registration.allocate_producer_ids"),
    _node_to_controller(ApiKey.CONTROLLER_REGISTRATION, (0, 0), "brokers.membership.register_controller"),
    _node_to_controller(ApiKey.ASSIGN_REPLICAS_TO_DIRS, (0, 0), "partitions.directories.assign_replicas_to_dirs"),
    _node_to_controller(ApiKey.REPORT_REPLICAS, (0, 0), "partitions.reports.report_replicas"),
    _node_to_controller(ApiKey.ALLOW_TRUNCATION, (0, 0), "partitions.reports.allow_truncation"),
    _node_to_controller(ApiKey.MOVE_LEADER, (0, 0), "partitions.move_leader.move_leader"),
    # ---- the metadata quorum
    _quorum(ApiKey.VOTE, (0, 2)),
    _quorum(ApiKey.BEGIN_QUORUM_EPOCH, (0, 1)),
    _quorum(ApiKey.END_QUORUM_EPOCH, (0, 1)),
    _quorum(ApiKey.FETCH_SNAPSHOT, (0, 1)),
    _quorum(ApiKey.UPDATE_RAFT_VOTER, (0, 0)),
    _quorum_admin(ApiKey.DESCRIBE_QUORUM, (0, 2)),
    _quorum_admin(ApiKey.ADD_RAFT_VOTER, (0, 1)),
    _quorum_admin(ApiKey.REMOVE_RAFT_VOTER, (0, 0)),
)
CATALOGUE: dict[int, Api] = {api.key: api for api in sorted(_ROWS, key=lambda api: api.key)}


def answered_by(who: AnsweredBy) -> list[Api]:
    return [api for api in CATALOGUE.values() if api.answered_by is who]


def load(place: str) -> Callable[..., Any]:
    """The function of this full name."""
    module, _, function = place.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def load_handler(served: Served) -> Callable[..., Any]:
    module, _, function = served.handler.rpartition(".")
    return load(f"tailrace.broker.handlers.{module}.handle_{function}")
