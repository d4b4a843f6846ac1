"""`tailrace group list` and `delete`."""

from __future__ import annotations

import argparse

from tailrace.cli import CommandError
from tailrace.cli.output import note, print_json, print_rows
from tailrace.client.groups.admin import GroupAdmin, GroupLag, PartitionLag
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError


async def list_groups(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = GroupAdmin(cluster)
    groups = await admin.groups(states=options.state, types=options.type)
    lags = [await admin.lag(group.group_id) for group in groups]
    if options.json:
        for group, lag in zip(groups, lags, strict=True):
            print_json({**group._asdict(), "lag": lag and lag.lag, "lag_s": lag_s(lag), "verdict": lag and lag.verdict})
    else:
        print_rows(
            ("group", "type", "state", "protocol", "coordinator", "lag", "lag s", "verdict"),
            [
                (
                    each.group_id,
                    each.type,
                    each.state,
                    each.protocol_type,
                    each.coordinator_id,
                    lag and lag.lag,
                    lag_s(lag),
                    lag and lag.verdict,
                )
                for each, lag in zip(groups, lags, strict=True)
            ],
        )
    return 0


def lag_s(lag: GroupLag | PartitionLag | None) -> float | None:
    """In seconds, where it is known."""
    return None if lag is None or lag.lag_ms < 0 else round(lag.lag_ms / 1000, 1)


async def delete_groups(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = GroupAdmin(cluster)
    for group_id in options.groups:
        try:
            await admin.delete(group_id)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND and options.if_exists:
                note(f"group {group_id} is not there")
                continue
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                raise CommandError(
                    f"group {group_id} has members: stop them first; see: tailrace group describe {group_id}"
                ) from None
            raise
        if options.json:
            print_json({"group_id": group_id, "deleted": True})
        else:
            print(f"deleted group {group_id}")
    return 0
