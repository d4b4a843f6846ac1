"""The table of served APIs: the one place that says what this broker serves, in which versions, and where.

ApiVersions advertises exactly what stands here. Modules are imported when their first request comes, so that the
start does not pay for them. A handler is `handle_x(broker, context, request)`; see broker/context.py for what it may
return.
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
    10: Served(0, 6, "coordinators", "handle_find_coordinator"),
    18: Served(0, 4, "api_versions", "handle_api_versions"),
    19: Served(2, 7, "topics", "handle_create_topics"),
    20: Served(1, 6, "topics", "handle_delete_topics"),
    21: Served(0, 2, "offsets", "handle_delete_records"),
    22: Served(0, 5, "producers", "handle_init_producer_id"),
    23: Served(2, 4, "offsets", "handle_offset_for_leader_epoch"),
    32: Served(1, 4, "configs", "handle_describe_configs"),
    33: Served(0, 2, "configs", "handle_alter_configs"),
    35: Served(1, 5, "log_dirs", "handle_describe_log_dirs"),
    37: Served(0, 3, "topics", "handle_create_partitions"),
    44: Served(0, 1, "configs", "handle_incremental_alter_configs"),
    60: Served(0, 2, "metadata", "handle_describe_cluster"),
    74: Served(0, 1, "configs", "handle_list_config_resources"),
    75: Served(0, 0, "metadata", "handle_describe_topic_partitions"),
}

# librdkafka turns compression on only if Produce is advertised from version 0 (KAFKA-18659): so it is, and requests
# of versions 0 to 2 close the connection, as in Kafka 4.
ADVERTISED_VERSION_MIN: dict[int, int] = {0: 0}
