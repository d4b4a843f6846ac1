"""`tailrace group list` and `delete`."""

from __future__ import annotations

import argparse

from tailrace.cli import CommandError
from tailrace.cli.output import note, print_json, print_rows
from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError


async def list_groups(cluster: Cluster, options: argparse.Namespace) -> int:
    groups = await GroupAdmin(cluster).groups(states=options.state, types=options.type)
    if options.json:
        for group in groups:
            print_json(group._asdict())
    else:
        print_rows(
            ("group", "type", "state", "protocol", "coordinator"),
            [(each.group_id, each.type, each.state, each.protocol_type, each.coordinator_id) for each in groups],
        )
    return 0


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
