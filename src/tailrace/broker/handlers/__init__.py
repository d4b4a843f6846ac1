"""The tables of served APIs: the one place that says what a node serves, in which versions, and where.

HANDLERS is served on the listeners of clients, CONTROLLER_HANDLERS on those of the metadata quorum. ApiVersions
advertises exactly what stands in these two. Modules are imported when their first request comes, so that the start does
not pay for them. A handler is `handle_x(broker, context, request)`; see broker/context.py for what it may return.
"""

from typing import NamedTuple


class Served(NamedTuple):
    """One API: the versions served (both inclusive, as on the wire) and the function that does it."""

    version_min: int
    version_max: int
    module: str
    function: str


# Low ends are those of clients in use; see docs/protocol.md. Not listed are APIs that do not work yet: clients call
# whatever is advertised (telemetry, share groups, delegation tokens).
HANDLERS: dict[int, Served] = {
    0: Served(3, 13, "produce", "handle_produce"),
    1: Served(4, 18, "fetch", "handle_fetch"),
    2: Served(1, 11, "offsets", "handle_list_offsets"),
    3: Served(0, 13, "metadata", "handle_metadata"),
    8: Served(2, 10, "groups.offsets", "handle_offset_commit"),
    9: Served(1, 10, "groups.offsets", "handle_offset_fetch"),
    10: Served(0, 6, "coordinators", "handle_find_coordinator"),
    11: Served(0, 9, "groups.membership", "handle_of_waiting_member"),
    12: Served(0, 4, "groups.membership", "handle_of_named_group"),
    13: Served(0, 5, "groups.membership", "handle_of_named_group"),
    14: Served(0, 5, "groups.membership", "handle_of_waiting_member"),
    15: Served(0, 6, "groups.listing", "handle_describe_groups"),
    16: Served(0, 5, "groups.listing", "handle_list_groups"),
    18: Served(0, 4, "api_versions", "handle_api_versions"),
    19: Served(2, 7, "admin.topics", "handle_create_topics"),
    20: Served(1, 6, "admin.topics", "handle_delete_topics"),
    21: Served(0, 2, "offsets", "handle_delete_records"),
    22: Served(0, 5, "transactions.producing", "handle_init_producer_id"),
    23: Served(2, 4, "offsets", "handle_offset_for_leader_epoch"),
    24: Served(0, 5, "transactions.producing", "handle_add_partitions_to_txn"),
    25: Served(0, 4, "transactions.producing", "handle_of_transaction"),
    26: Served(0, 5, "transactions.producing", "handle_of_transaction"),
    27: Served(1, 2, "transactions.looking", "handle_write_txn_markers"),
    28: Served(0, 5, "transactions.producing", "handle_txn_offset_commit"),
    32: Served(1, 4, "admin.configs", "handle_describe_configs"),
    33: Served(0, 2, "admin.configs", "handle_alter_configs"),
    34: Served(1, 2, "log_dirs", "handle_alter_replica_log_dirs"),
    35: Served(1, 5, "log_dirs", "handle_describe_log_dirs"),
    37: Served(0, 3, "admin.topics", "handle_create_partitions"),
    42: Served(0, 2, "groups.listing", "handle_delete_groups"),
    43: Served(0, 2, "admin.controller", "handle_by_controller"),
    44: Served(0, 1, "admin.configs", "handle_incremental_alter_configs"),
    45: Served(0, 1, "admin.controller", "handle_by_controller"),
    46: Served(0, 0, "admin.controller", "handle_by_controller"),
    47: Served(0, 0, "groups.offsets", "handle_offset_delete"),
    55: Served(0, 2, "admin.controller", "handle_by_quorum"),
    57: Served(0, 2, "admin.controller", "handle_by_controller"),
    60: Served(0, 2, "metadata", "handle_describe_cluster"),
    61: Served(0, 0, "transactions.looking", "handle_describe_producers"),
    64: Served(0, 0, "admin.controller", "handle_by_controller"),
    65: Served(0, 0, "transactions.looking", "handle_describe_transactions"),
    66: Served(0, 2, "transactions.looking", "handle_list_transactions"),
    68: Served(0, 1, "groups.membership", "handle_consumer_group_heartbeat"),
    69: Served(0, 1, "groups.listing", "handle_consumer_group_describe"),
    74: Served(0, 1, "admin.configs", "handle_list_config_resources"),
    75: Served(0, 0, "metadata", "handle_describe_topic_partitions"),
    80: Served(0, 1, "admin.controller", "handle_by_quorum"),
    81: Served(0, 0, "admin.controller", "handle_by_quorum"),
}

# Requests of our own commands (wire.apis.own): served beside HANDLERS, and not advertised.
OWN_HANDLERS: dict[int, Served] = {
    10_000: Served(0, 0, "groups.history", "handle_describe_group_history"),
}

CONTROLLER_HANDLERS: dict[int, Served] = {
    1: Served(17, 18, "quorum", "handle_fetch"),
    18: HANDLERS[18],
    # Administrators may ask a controller directly (KIP-919); most of these also come by Envelope.
    **{api_key: HANDLERS[api_key] for api_key in (19, 20, 32, 33, 37, 43, 44, 45, 46, 57, 60, 64)},
    52: Served(0, 2, "quorum", "handle_vote"),
    53: Served(0, 1, "quorum", "handle_begin_quorum_epoch"),
    54: Served(0, 1, "quorum", "handle_end_quorum_epoch"),
    55: Served(0, 2, "quorum", "handle_describe_quorum"),
    56: Served(2, 3, "admin.controller", "handle_by_controller"),
    58: Served(0, 0, "admin.controller", "handle_envelope"),
    59: Served(0, 1, "quorum", "handle_fetch_snapshot"),
    62: Served(0, 4, "admin.controller", "handle_by_controller"),
    63: Served(0, 2, "admin.controller", "handle_by_controller"),
    67: Served(0, 0, "admin.controller", "handle_by_controller"),
    70: Served(0, 0, "admin.controller", "handle_by_controller"),
    73: Served(0, 0, "admin.controller", "handle_by_controller"),
    80: Served(0, 1, "quorum", "handle_add_raft_voter"),
    81: Served(0, 0, "quorum", "handle_remove_raft_voter"),
    82: Served(0, 0, "quorum", "handle_update_raft_voter"),
    # Of our own brokers (wire.apis.own).
    10_100: Served(0, 0, "admin.controller", "handle_by_controller"),
    10_101: Served(0, 0, "admin.controller", "handle_by_controller"),
    10_102: Served(0, 0, "admin.controller", "handle_by_controller"),
}

# What an Envelope may hold.
FORWARDABLE: dict[int, Served] = {
    api_key: CONTROLLER_HANDLERS[api_key] for api_key in (19, 20, 33, 37, 43, 44, 45, 46, 55, 57, 64, 80, 81)
}

# librdkafka turns compression on only if Produce is advertised from version 0 (KAFKA-18659): so it is, and requests
# of versions 0 to 2 close the connection, as in Kafka 4.
ADVERTISED_VERSION_MIN: dict[int, int] = {0: 0}
