"""The settings of a share group as a handler needs them: set if nobody has, and read.

Where a share group begins, and whether it sees what was aborted, are not options of its members but settings of the
group. What somebody has set stays.
"""

from __future__ import annotations

import logging

from tailrace.client.admin import CONFIG_SOURCES, RESOURCE_GROUP, Admin
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError

_log = logging.getLogger("tailrace.app")

_DELIVERIES = "share.delivery.count.limit"
_DELIVERIES_DEFAULT = 5
_DENIED = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def prepare_group(cluster: Cluster, group: str, *, start: str) -> int:
    """How often the group gives out a record before it gives it up. Raises KafkaError."""
    wanted = {"share.auto.offset.reset": start, "share.isolation.level": "read_committed"}
    admin = Admin(cluster)
    try:
        known = {entry.name: entry for entry in await admin.configs_of(RESOURCE_GROUP, group)}
        missing = {
            name: value
            for name, value in wanted.items()
            if name in known and known[name].value != value and CONFIG_SOURCES.get(known[name].source) != "group"
        }
        limit = known[_DELIVERIES].value if _DELIVERIES in known else None
        if missing:
            await admin.alter_configs(RESOURCE_GROUP, group, changes=missing)
    except KafkaError as error:
        if error.code not in _DENIED:
            raise
        settings = " ".join(f"{name}={value}" for name, value in wanted.items())
        _log.warning(
            "the settings of share group %s are not this user's to see or to change: let somebody call: tailrace "
            "queue set %s %s",
            group,
            group,
            settings,
        )
        return _DELIVERIES_DEFAULT
    return int(limit) if limit else _DELIVERIES_DEFAULT
