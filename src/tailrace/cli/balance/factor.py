"""`tailrace topic alter --replication-factor`: replicas come and go as the balancer moves them."""

from __future__ import annotations

import argparse

from tailrace.balance.plan.picture import Wish
from tailrace.balance.run.runner import BalanceError, ImpossibleError
from tailrace.cli import CommandError
from tailrace.cli.balance.options import make_runner
from tailrace.client.metadata import Cluster


async def change_factor(cluster: Cluster, options: argparse.Namespace, topic: str, factor: int) -> int:
    """How many partitions were changed, or would be."""
    await cluster.refresh([topic])  # Or it says that there is no such topic.
    wish = Wish(factors={topic: factor}, must_only=True)
    runner = make_runner(cluster, options)
    if options.validate_only:
        plan = await runner.plan(wish)
        if plan.problems:
            raise CommandError("; ".join(plan.problems))
        return len(plan.moves)
    try:
        outcome = await runner.run(wish)
    except ImpossibleError as error:
        raise CommandError(str(error)) from None
    except BalanceError as error:
        raise CommandError(f"{error}. To go on with what is left, run it again") from None
    if outcome.given_up:
        raise CommandError(f"not changed: {'; '.join(outcome.given_up)}")
    return outcome.moved
