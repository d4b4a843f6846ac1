"""The catalogue of APIs: one row for each, with all that the parts of a node have to agree on.

What a row says is in `columns`.

A new API that the controller answers is a row here, a handler where `handle_by_controller` does not do, and an op.
Modules are named, not imported: they are loaded with their first request, so that a start does not pay for them.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tailrace.columns import OPEN, AnsweredBy, Api, Asks, Audience, Form, Need, Served, Throttled, Versions
from tailrace.model.acls import Kind, Operation
from tailrace.wire.apis.keys import ApiKey

__all__ = ["CATALOGUE", "AnsweredBy", "Api", "Audience", "Served", "answered_by", "load", "load_handler", "load_judge"]


def _this_node(key: ApiKey, versions: Versions, handler: str, asks: Asks, failure: Form = ()) -> Api:
    return Api(key, for_clients=Served(*versions, handler, asks), failure=failure)


def _controller(
    key: ApiKey,
    versions: Versions,
    op: str,
    asks: Asks,
    *,
    failure: Form = (),
    handler: str = "admin.controller.by_controller",
) -> Api:
    """Asked of any broker, which hands it on, or of a controller itself (KIP-919). Both judge it: they may be one."""
    served = Served(*versions, handler, asks)
    return Api(key, served, served, AnsweredBy.CONTROLLER, op, failure, is_forwardable=True)


def _token(key: ApiKey, versions: Versions, op: str, asks: Asks, *, failure: Form = ()) -> Api:
    return _controller(key, versions, f"security.tokens.{op}", asks, failure=failure)._replace(before=_MAY_HAVE_TOKENS)


def _alter_configs(key: ApiKey, versions: Versions, op: str) -> Api:
    asks, handler = ("cluster.alter_configs",), "admin.stores.alter_configs"
    return _controller(key, versions, op, asks, failure=("resources > responses",), handler=handler)


def _node_to_controller(key: ApiKey, versions: Versions, op: str) -> Api:
    """Asked by other nodes alone."""
    served = Served(*versions, "admin.controller.by_controller", _CLUSTER_ACTION)
    return Api(key, for_controllers=served, answered_by=AnsweredBy.CONTROLLER, op=op)


def _quorum(key: ApiKey, versions: Versions, handler: str = "quorum.by_raft") -> Api:
    return Api(key, for_controllers=Served(*versions, handler, _CLUSTER_ACTION), answered_by=AnsweredBy.QUORUM)


def _quorum_admin(key: ApiKey, versions: Versions, asks: Asks) -> Api:
    return Api(
        key,
        Served(*versions, "admin.controller.by_quorum", asks),
        Served(*versions, "quorum.by_raft", asks),
        AnsweredBy.QUORUM,
        is_forwardable=True,
    )


def _group(key: ApiKey, versions: Versions, handler: str, op: str, asks: Asks, *, failure: Form = ()) -> Api:
    return Api(key, Served(*versions, f"groups.{handler}", asks), None, AnsweredBy.GROUPS, op, failure)


def _transaction(
    key: ApiKey, versions: Versions, handler: str, op: str, asks: Asks, *, failure: Form = "of_transaction"
) -> Api:
    served = Served(*versions, f"transactions.{handler}", asks)
    return Api(key, served, None, AnsweredBy.TRANSACTIONS, f"transactions.{op}", failure)


_MAY_HAVE_TOKENS = ("tailrace.broker.handlers.admin.tokens.check_may_have_tokens",)
_PARTITIONS = ("topics", "partitions")
_CLUSTER_ACTION = (Need(Operation.CLUSTER_ACTION, Kind.CLUSTER),)
_ALTER_CLUSTER = (Need(Operation.ALTER, Kind.CLUSTER),)
_DESCRIBE_CLUSTER = (Need(Operation.DESCRIBE, Kind.CLUSTER),)
_DESCRIBE_GROUP = Need(Operation.DESCRIBE, Kind.GROUP, "group_id")
_READ_GROUP = Need(Operation.READ, Kind.GROUP, "group_id")
_READ_TOPICS = Need(Operation.READ, Kind.TOPIC, "topics.name")
_WRITE_AS_ID = Need(Operation.WRITE, Kind.TRANSACTIONAL_ID, "transactional_id")
_ROWS = (
    # ---- records, and what is known of them
    # librdkafka turns compression on only if Produce is advertised from version 0 (KAFKA-18659): so it is, and requests
    # of versions 0 to 2 close the connection, as in Kafka 4.
    Api(
        ApiKey.PRODUCE,
        Served(3, 13, "produce.produce", ("records.produce",)),
        failure="of_produce",
        advertised_min=0,
        throttled=Throttled.BY_PRODUCED,
    ),
    Api(
        ApiKey.FETCH,
        # Judged where it reads, each time anew: see broker/access/records.
        Served(4, 18, "fetch.fetch", ("records.fetch",)),
        Served(17, 18, "quorum.by_raft", _CLUSTER_ACTION),
        failure="of_fetch",
        throttled=Throttled.BY_FETCHED,
    ),
    _this_node(
        ApiKey.LIST_OFFSETS,
        (1, 11),
        "offsets.list_offsets",
        (Need(Operation.DESCRIBE, Kind.TOPIC, "topics.name"),),
        _PARTITIONS,
    ),
    _this_node(
        ApiKey.DELETE_RECORDS,
        (0, 2),
        "offsets.delete_records",
        (Need(Operation.DELETE, Kind.TOPIC, "topics.name"),),
        "of_delete_records",
    ),
    _this_node(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        (2, 4),
        "offsets.offset_for_leader_epoch",
        (Need(Operation.DESCRIBE, Kind.TOPIC, "topics.topic", or_cluster=Operation.CLUSTER_ACTION),),
        _PARTITIONS,
    ),
    # ---- what a client has to know first
    Api(
        ApiKey.API_VERSIONS,
        Served(0, 4, "api_versions.api_versions", OPEN),
        Served(0, 4, "api_versions.api_versions", OPEN),
    ),
    # Taken where a login is due, by `broker.auth`; a connection that may speak is told that this is not the moment.
    Api(
        ApiKey.SASL_HANDSHAKE,
        Served(0, 1, "sasl.sasl_handshake", OPEN),
        Served(0, 1, "sasl.sasl_handshake", OPEN),
    ),
    Api(
        ApiKey.SASL_AUTHENTICATE,
        Served(0, 2, "sasl.sasl_authenticate", OPEN),
        Served(0, 2, "sasl.sasl_authenticate", OPEN),
    ),
    _this_node(ApiKey.METADATA, (0, 13), "metadata.metadata", ("topics.metadata",), "of_metadata"),
    _this_node(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        (0, 0),
        "metadata.describe_topic_partitions",
        ("topics.describe_topic_partitions",),
        ("topics",),
    ),
    Api(
        ApiKey.DESCRIBE_CLUSTER,
        Served(0, 2, "metadata.describe_cluster", OPEN),
        Served(0, 2, "metadata.describe_cluster", _ALTER_CLUSTER),
    ),
    _this_node(
        ApiKey.FIND_COORDINATOR,
        (0, 6),
        "coordinators.find_coordinator",
        ("groups.find_coordinator",),
        "of_find_coordinator",
    ),
    # ---- groups
    _group(
        ApiKey.OFFSET_COMMIT,
        (2, 10),
        "offsets.offset_commit",
        "offsets.commit.commit_offsets",
        (_READ_GROUP, _READ_TOPICS),
        failure=_PARTITIONS,
    ),
    _group(
        ApiKey.OFFSET_FETCH,
        (1, 10),
        "offsets.offset_fetch",
        "offsets.fetch.fetch_offsets",
        ("groups.offset_fetch",),
        failure="of_offset_fetch",
    ),
    _group(
        ApiKey.OFFSET_DELETE,
        (0, 0),
        "offsets.offset_delete",
        "offsets.deletion.delete_offsets",
        (Need(Operation.DELETE, Kind.GROUP, "group_id"), "groups.offset_delete"),
    ),
    _group(
        ApiKey.JOIN_GROUP,
        (0, 9),
        "membership.join_or_sync",
        "classic.join.join_group",
        (_READ_GROUP,),
        failure="of_join_group",
    ),
    _group(ApiKey.SYNC_GROUP, (0, 5), "membership.join_or_sync", "classic.sync.sync_group", (_READ_GROUP,)),
    _group(
        ApiKey.HEARTBEAT,
        (0, 4),
        "membership.heartbeat_or_leave",
        "classic.heartbeat.heartbeat",
        (_READ_GROUP,),
        failure="of_heartbeat",
    ),
    _group(
        ApiKey.LEAVE_GROUP,
        (0, 5),
        "membership.heartbeat_or_leave",
        "classic.leave.leave_group",
        (_READ_GROUP,),
        failure="of_leave_group",
    ),
    _group(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        (0, 1),
        "membership.consumer_group_heartbeat",
        "consumers.heartbeat.heartbeat",
        (_READ_GROUP, "groups.consumer_group_heartbeat"),
    ),
    _group(
        ApiKey.DESCRIBE_GROUPS,
        (0, 6),
        "listing.describe_groups",
        "listing.describe_group",
        (Need(Operation.DESCRIBE, Kind.GROUP, "groups[]"), "groups.told_operations"),
        failure=("groups > groups.group_id",),
    ),
    _group(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (0, 1),
        "listing.consumer_group_describe",
        "consumers.description.describe_group",
        (
            Need(Operation.DESCRIBE, Kind.GROUP, "group_ids[]"),
            "groups.told_operations",
            "groups.consumer_group_describe",
        ),
        failure=("group_ids > groups.group_id",),
    ),
    _group(
        ApiKey.DELETE_GROUPS,
        (0, 2),
        "listing.delete_groups",
        "listing.delete_group",
        (Need(Operation.DELETE, Kind.GROUP, "groups_names[]"),),
        failure=("groups_names > results.group_id",),
    ),
    Api(
        ApiKey.TXN_OFFSET_COMMIT,
        Served(0, 5, "transactions.producing.txn_offset_commit", (_WRITE_AS_ID, _READ_GROUP, _READ_TOPICS)),
        answered_by=AnsweredBy.GROUPS,
        op="offsets.transactional.commit_transactional_offsets",
        failure=_PARTITIONS,
    ),
    # These tell of all groups of this broker, and of what its coordinators have seen.
    _this_node(ApiKey.LIST_GROUPS, (0, 5), "groups.listing.list_groups", ("groups.list_groups",)),
    _this_node(ApiKey.DESCRIBE_GROUP_HISTORY, (0, 0), "groups.history.describe_group_history", (_DESCRIBE_GROUP,)),
    _this_node(ApiKey.DESCRIBE_GROUP_LAG, (0, 0), "groups.lag.describe_group_lag", (_DESCRIBE_GROUP,)),
    # Asked by brokers that coordinate groups: what they find tells how far behind these are.
    _this_node(ApiKey.LOCATE_OFFSETS, (0, 0), "groups.lag.locate_offsets", _CLUSTER_ACTION),
    # ---- share groups
    _group(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        (1, 1),
        "shares.share_group_heartbeat",
        "shares.heartbeat.heartbeat",
        (_READ_GROUP, "groups.consumer_group_heartbeat"),
    ),
    _group(
        ApiKey.SHARE_GROUP_DESCRIBE,
        (1, 1),
        "shares.share_group_describe",
        "shares.description.describe_group",
        (
            Need(Operation.DESCRIBE, Kind.GROUP, "group_ids[]"),
            "groups.told_operations",
            "groups.share_group_describe",
        ),
        failure=("group_ids > groups.group_id",),
    ),
    # Topics are judged where they are read and acknowledged, each by itself.
    Api(
        ApiKey.SHARE_FETCH,
        Served(1, 2, "shares.fetch.share_fetch", (_READ_GROUP,)),
        throttled=Throttled.BY_FETCHED,
    ),
    _this_node(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), "shares.acknowledge.share_acknowledge", (_READ_GROUP,)),
    _this_node(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        (0, 1),
        "groups.shares.describe_share_group_offsets",
        (Need(Operation.DESCRIBE, Kind.GROUP, "groups.group_id"),),
        ("groups",),
    ),
    _this_node(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        (0, 0),
        "groups.shares.alter_share_group_offsets",
        (_READ_GROUP, Need(Operation.READ, Kind.TOPIC, "topics.topic_name")),
        "of_share_offsets",
    ),
    _this_node(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        (0, 0),
        "groups.shares.delete_share_group_offsets",
        (
            Need(Operation.DELETE, Kind.GROUP, "group_id"),
            Need(Operation.READ, Kind.TOPIC, "topics.topic_name"),
        ),
        "of_share_offsets",
    ),
    _this_node(ApiKey.DESCRIBE_QUEUE, (0, 0), "shares.looking.describe_queue", (_DESCRIBE_GROUP,)),
    # ---- streams groups
    _group(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        (0, 0),
        "streams.streams_group_heartbeat",
        "streams.heartbeat.heartbeat",
        (_READ_GROUP, "groups.streams_group_heartbeat"),
    ),
    _group(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        (0, 0),
        "streams.streams_group_describe",
        "streams.description.describe_group",
        (
            Need(Operation.DESCRIBE, Kind.GROUP, "group_ids[]"),
            "groups.told_operations",
            "groups.streams_group_describe",
        ),
        failure=("group_ids > groups.group_id",),
    ),
    # Asked by leaders of partitions and by coordinators of share groups.
    *(
        _this_node(key, versions, "shares.states.share_state", _CLUSTER_ACTION, ("topics > results", "partitions"))
        for key, versions in (
            (ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0)),
            (ApiKey.READ_SHARE_GROUP_STATE, (0, 0)),
            (ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1)),
            (ApiKey.DELETE_SHARE_GROUP_STATE, (0, 0)),
            (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1)),
        )
    ),
    # ---- what people want to see of a node
    _this_node(ApiKey.DESCRIBE_CONNECTIONS, (0, 0), "inspection.describe_connections", _DESCRIBE_CLUSTER),
    _this_node(
        ApiKey.DESCRIBE_SEGMENTS,
        (0, 0),
        "inspection.describe_segments",
        (Need(Operation.DESCRIBE, Kind.TOPIC, "topics.name"),),
        _PARTITIONS,
    ),
    _this_node(ApiKey.DESCRIBE_AUDIT, (0, 0), "inspection.describe_audit", _DESCRIBE_CLUSTER),
    # ---- mirrors of other clusters
    _controller(ApiKey.CREATE_MIRROR_LINK, (0, 0), "mirrors.links.create_mirror_link", _ALTER_CLUSTER),
    _controller(ApiKey.ALTER_MIRROR_LINK, (0, 0), "mirrors.links.alter_mirror_link", _ALTER_CLUSTER),
    _controller(ApiKey.OPEN_MIRROR_TOPICS, (0, 0), "mirrors.opening.open_mirror_topics", _ALTER_CLUSTER),
    _controller(ApiKey.CLOSE_MIRROR_SOURCE, (0, 0), "mirrors.closing.close_mirror_source", _ALTER_CLUSTER),
    _controller(ApiKey.REVERSE_MIRROR, (0, 0), "mirrors.reversing.reverse_mirror", _ALTER_CLUSTER),
    _this_node(ApiKey.DESCRIBE_MIRRORS, (0, 0), "inspection.describe_mirrors", _DESCRIBE_CLUSTER),
    # ---- transactions
    _transaction(
        ApiKey.INIT_PRODUCER_ID,
        (0, 5),
        "producing.init_producer_id",
        "beginning.init_producer_id",
        ("transactions.init_producer_id",),
    ),
    _transaction(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (0, 5),
        "producing.add_partitions_to_txn",
        "partitions.add_partitions",
        ("transactions.add_partitions_to_txn",),
    )._replace(between_brokers_since=4),
    _transaction(
        ApiKey.ADD_OFFSETS_TO_TXN,
        (0, 4),
        "producing.add_offsets_to_txn",
        "partitions.add_offsets",
        (_WRITE_AS_ID, _READ_GROUP),
    ),
    _transaction(ApiKey.END_TXN, (0, 5), "producing.of_transaction", "ending.end_transaction", (_WRITE_AS_ID,)),
    _transaction(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (0, 0),
        "listing.describe_transactions",
        "listing.describe_transaction",
        (
            Need(Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, "transactional_ids[]"),
            "transactions.describe_transactions",
        ),
        failure=("transactional_ids > transaction_states.transactional_id",),
    ),
    _this_node(
        ApiKey.LIST_TRANSACTIONS,
        (0, 2),
        "transactions.listing.list_transactions",
        ("transactions.list_transactions",),
    ),
    _this_node(
        ApiKey.DESCRIBE_PRODUCERS,
        (0, 0),
        "transactions.listing.describe_producers",
        (_READ_TOPICS,),
        ("topics", "partition_indexes > partitions.partition_index"),
    ),
    _this_node(
        ApiKey.WRITE_TXN_MARKERS,
        (1, 2),
        "transactions.markers.write_txn_markers",
        (Need(Operation.CLUSTER_ACTION, Kind.CLUSTER, or_cluster=Operation.ALTER),),
        ("markers", "topics", "partition_indexes > partitions.partition_index"),
    )._replace(throttled=Throttled.NEVER),
    # ---- topics, settings and the cluster
    _controller(
        ApiKey.CREATE_TOPICS,
        (2, 7),
        "topics.create_topics",
        (
            Need(Operation.CREATE, Kind.TOPIC, "topics.name", or_cluster=Operation.CREATE),
            "topics.created_settings",
        ),
        failure=("topics",),
    ),
    _controller(
        ApiKey.DELETE_TOPICS, (1, 6), "topics.delete_topics", ("topics.delete_topics",), failure="of_delete_topics"
    ),
    _controller(
        ApiKey.CREATE_PARTITIONS,
        (0, 3),
        "partitions.creation.create_partitions",
        (Need(Operation.ALTER, Kind.TOPIC, "topics.name"),),
        failure=("topics > results",),
    ),
    _alter_configs(ApiKey.ALTER_CONFIGS, (0, 2), "configs.alter_configs"),
    _alter_configs(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), "configs.incremental_alter_configs"),
    _controller(
        ApiKey.ELECT_LEADERS,
        (0, 2),
        "partitions.elections.elect_leaders",
        _ALTER_CLUSTER,
        failure=("topic_partitions > replica_election_results", "partitions > partition_result.partition_id"),
    ),
    _controller(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        (0, 1),
        "partitions.reassignment.alter_partition_reassignments",
        _ALTER_CLUSTER,
        failure=("topics > responses", "partitions"),
    ),
    _controller(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (0, 0),
        "partitions.reassignment.list_partition_reassignments",
        _DESCRIBE_CLUSTER,
    ),
    _controller(ApiKey.UPDATE_FEATURES, (0, 2), "feature_updates.update_features", _ALTER_CLUSTER),
    _controller(ApiKey.UNREGISTER_BROKER, (0, 0), "brokers.membership.unregister_broker", _ALTER_CLUSTER),
    Api(
        ApiKey.DESCRIBE_CONFIGS,
        Served(1, 4, "admin.configs.describe_configs", ("cluster.describe_configs",)),
        Served(1, 4, "admin.configs.describe_configs", ("cluster.describe_configs",)),
        failure=("resources > results",),
    ),
    _this_node(
        ApiKey.LIST_CONFIG_RESOURCES,
        (0, 1),
        "admin.configs.list_config_resources",
        (Need(Operation.DESCRIBE_CONFIGS, Kind.CLUSTER),),
    ),
    _controller(
        ApiKey.ALTER_CLIENT_QUOTAS,
        (0, 1),
        "security.quotas.alter_client_quotas",
        (Need(Operation.ALTER_CONFIGS, Kind.CLUSTER),),
        failure="of_alter_client_quotas",
    ),
    _this_node(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        (0, 1),
        "admin.quotas.describe_client_quotas",
        (Need(Operation.DESCRIBE_CONFIGS, Kind.CLUSTER),),
        "of_describe_client_quotas",
    ),
    _this_node(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        (1, 2),
        "log_dirs.alter_replica_log_dirs",
        _ALTER_CLUSTER,
        "of_alter_replica_log_dirs",
    ),
    _this_node(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), "log_dirs.describe_log_dirs", _DESCRIBE_CLUSTER),
    # ---- what clients tell of themselves (KIP-714). Nobody needs a right for it, as in Kafka.
    _this_node(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, (0, 0), "telemetry.get_telemetry_subscriptions", OPEN)._replace(
        only_with="telemetry"
    ),
    _this_node(ApiKey.PUSH_TELEMETRY, (0, 0), "telemetry.push_telemetry", OPEN)._replace(only_with="telemetry"),
    # ---- who may log in by SCRAM
    Api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        Served(0, 0, "admin.credentials.describe_user_scram_credentials", _DESCRIBE_CLUSTER),
        Served(0, 0, "admin.credentials.describe_user_scram_credentials", _DESCRIBE_CLUSTER),
        failure=("users > results",),
    ),
    _controller(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        (0, 0),
        "security.credentials.alter_user_scram_credentials",
        _ALTER_CLUSTER,
        failure="of_alter_user_scram_credentials",
    ),
    # ---- who may log in for whom (KIP-48, KIP-373)
    _token(
        ApiKey.CREATE_DELEGATION_TOKEN,
        (1, 3),
        "create_delegation_token",
        ("tokens.create_delegation_token",),
        failure="of_create_delegation_token",
    ),
    # Whether it is one's own is the controller's to decide: it knows whose it is.
    _token(ApiKey.RENEW_DELEGATION_TOKEN, (1, 2), "renew_delegation_token", OPEN),
    _token(ApiKey.EXPIRE_DELEGATION_TOKEN, (1, 2), "expire_delegation_token", OPEN),
    Api(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        Served(1, 3, "admin.tokens.describe_delegation_token", ("tokens.describe_delegation_token",)),
        Served(1, 3, "admin.tokens.describe_delegation_token", ("tokens.describe_delegation_token",)),
        before=_MAY_HAVE_TOKENS,
    ),
    # ---- who may do what. Where there is no authorizer these are refused with SECURITY_DISABLED.
    Api(
        ApiKey.DESCRIBE_ACLS,
        Served(1, 3, "admin.acls.describe_acls", _DESCRIBE_CLUSTER),
        Served(1, 3, "admin.acls.describe_acls", _DESCRIBE_CLUSTER),
    ),
    Api(
        ApiKey.CREATE_ACLS,
        Served(1, 3, "admin.acls.change_acls", _ALTER_CLUSTER),
        Served(1, 3, "admin.acls.change_acls", _ALTER_CLUSTER),
        AnsweredBy.CONTROLLER,
        "security.acls.create_acls",
        ("creations > results",),
        is_forwardable=True,
    ),
    Api(
        ApiKey.DELETE_ACLS,
        Served(1, 3, "admin.acls.change_acls", _ALTER_CLUSTER),
        Served(1, 3, "admin.acls.change_acls", _ALTER_CLUSTER),
        AnsweredBy.CONTROLLER,
        "security.acls.delete_acls",
        ("filters > filter_results",),
        is_forwardable=True,
    ),
    # ---- between brokers and controllers
    # What is inside is judged by itself, for the client that it tells of.
    Api(ApiKey.ENVELOPE, for_controllers=Served(0, 0, "admin.controller.envelope", _CLUSTER_ACTION)),
    _node_to_controller(ApiKey.ALTER_PARTITION, (2, 3), "partitions.alter_partition.alter_partition"),
    _node_to_controller(ApiKey.BROKER_REGISTRATION, (0, 4), "brokers.registration.register_broker"),
    _node_to_controller(ApiKey.BROKER_HEARTBEAT, (0, 2), "brokers.heartbeats.heartbeat"),
    _node_to_controller(ApiKey.REPORT_DEATH, (0, 0), "brokers.heartbeats.report_death"),
    _node_to_controller(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), "brokers.registration.allocate_producer_ids"),
    _node_to_controller(ApiKey.CONTROLLER_REGISTRATION, (0, 0), "brokers.membership.register_controller"),
    _node_to_controller(ApiKey.ASSIGN_REPLICAS_TO_DIRS, (0, 0), "partitions.directories.assign_replicas_to_dirs"),
    _node_to_controller(ApiKey.REPORT_REPLICAS, (0, 0), "partitions.reports.report_replicas"),
    _node_to_controller(ApiKey.ALLOW_TRUNCATION, (0, 0), "partitions.reports.allow_truncation"),
    _node_to_controller(ApiKey.MOVE_LEADER, (0, 0), "partitions.move_leader.move_leader"),
    _node_to_controller(ApiKey.FOLLOW_MIRROR_SOURCE, (0, 0), "mirrors.following.follow_mirror_source"),
    # ---- the metadata quorum
    _quorum(ApiKey.VOTE, (0, 2)),
    _quorum(ApiKey.BEGIN_QUORUM_EPOCH, (0, 1)),
    _quorum(ApiKey.END_QUORUM_EPOCH, (0, 1)),
    _quorum(ApiKey.FETCH_SNAPSHOT, (0, 1)),
    _quorum(ApiKey.UPDATE_RAFT_VOTER, (0, 0)),
    _quorum_admin(ApiKey.DESCRIBE_QUORUM, (0, 2), _DESCRIBE_CLUSTER),
    _quorum_admin(ApiKey.ADD_RAFT_VOTER, (0, 1), _ALTER_CLUSTER),
    _quorum_admin(ApiKey.REMOVE_RAFT_VOTER, (0, 0), _ALTER_CLUSTER),
)
CATALOGUE: dict[int, Api] = {api.key: api for api in sorted(_ROWS, key=lambda api: api.key)}


def answered_by(who: AnsweredBy) -> list[Api]:
    return [api for api in CATALOGUE.values() if api.answered_by is who]


def load(place: str) -> Callable[..., Any]:
    """The function of this full name."""
    module, _, function = place.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def load_judge(name: str) -> Callable[..., Any]:
    """The function that `asks` names."""
    module, _, function = name.rpartition(".")
    return load(f"tailrace.broker.access.{module}.judge_{function}")


def load_handler(served: Served) -> Callable[..., Any]:
    module, _, function = served.handler.rpartition(".")
    return load(f"tailrace.broker.handlers.{module}.handle_{function}")
