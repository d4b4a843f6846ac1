"""`tailrace group history`: why did it rebalance?"""

from __future__ import annotations

import argparse

from tailrace.cli.output import note, print_json, print_rows
from tailrace.cli.times import time_text
from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.metadata import Cluster


async def history_groups(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = GroupAdmin(cluster)
    for group_id in options.groups or [group.group_id for group in await admin.groups()]:
        rebalances = await admin.history(group_id)
        if options.json:
            for each in rebalances:
                print_json({"group_id": group_id, **each._asdict()})
        elif rebalances:
            print_rows(
                ("group", "time (UTC)", "epoch", "cause", "what happened", "client"),
                [
                    (group_id, time_text(each.at_ms), each.epoch, each.cause, each.detail, each.client_id or None)
                    for each in rebalances
                ],
                title=f"group {group_id}",
            )
        else:
            note(f"group {group_id} has not rebalanced since its coordinator took it over")
    return 0
