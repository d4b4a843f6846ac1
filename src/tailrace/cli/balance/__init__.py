"""`tailrace balance plan|run|stop`: what should move and why, moves it, and ends a run."""

from __future__ import annotations

import argparse

from tailrace.balance.plan.picture import Wish
from tailrace.balance.run.runner import BalanceError, ImpossibleError
from tailrace.cli import Actions, CommandError
from tailrace.cli.balance.options import add_goal_options, add_pace_options, make_runner
from tailrace.cli.balance.tell import plan_facts, print_plan
from tailrace.cli.output import count_text, print_json
from tailrace.cli.session import add_client_work, positive_seconds
from tailrace.client.metadata import Cluster

DESCRIPTION = "Balance the cluster: show what should move and why, move it, or end a run. Nothing moves without `run`."
EXAMPLES = """\
examples:
  tailrace balance plan
  tailrace balance run --throttle 20MB/s
  tailrace balance run --drain 4
  tailrace balance stop
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    plan = actions.add("plan", "show which partitions should move, how much is copied, and why", "plan --json")
    add_client_work(plan, _plan)
    run = actions.add("run", "move them, a few at a time and throttled", "run --throttle 20MB/s --at-once 5")
    add_client_work(run, _run)
    run.add_argument(
        "--every",
        type=positive_seconds,
        metavar="SECONDS",
        help="look again after so long, until it is interrupted (default: once)",
    )
    run.add_argument("--beside", type=int, help=argparse.SUPPRESS)
    for each in (plan, run):
        _add_wish_options(each)
        add_goal_options(each)
        add_pace_options(each)
        each.add_argument("--json", action="store_true", help="print JSON")
    stop = actions.add(
        "stop", "end a run, or what a killed one has left: wait for its moves and take its throttles away", "stop"
    )
    add_client_work(stop, _stop)
    stop.add_argument(
        "--cancel", action="store_true", help="take the moves back, where enough replicas are in sync without them"
    )
    add_goal_options(stop)
    add_pace_options(stop)
    stop.add_argument("--json", action="store_true", help="print JSON")


def _add_wish_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--drain",
        type=int,
        action="append",
        default=[],
        metavar="ID",
        help="a broker that is to hold nothing; repeatable",
    )
    parser.add_argument(
        "--only-to",
        type=int,
        action="append",
        default=[],
        metavar="ID",
        help="move nothing to other brokers but what must move; repeatable",
    )
    parser.add_argument(
        "--must-only", action="store_true", help="only what racks, capacities and --drain ask for, no balance"
    )


def _wish(options: argparse.Namespace) -> Wish:
    both = set(options.drain) & set(options.only_to)
    if both:
        options.refuse(f"broker {min(both)} cannot be emptied and filled")
    return Wish(frozenset(options.drain), frozenset(options.only_to), must_only=options.must_only)


async def _plan(cluster: Cluster, options: argparse.Namespace) -> int:
    plan = await make_runner(cluster, options).plan(_wish(options))
    if options.json:
        print_json(plan_facts(plan, rate=options.throttle))
    else:
        print_plan(plan, rate=options.throttle)
    return 1 if plan.problems else 0


async def _run(cluster: Cluster, options: argparse.Namespace) -> int:
    if options.every is not None:
        from tailrace.cli.balance.always import run_always

        return await run_always(cluster, options, _wish(options))
    try:
        outcome = await make_runner(cluster, options).run(_wish(options))
    except ImpossibleError as error:
        raise CommandError(f"nothing moves: {error}") from None
    except BalanceError as error:
        raise CommandError(f"{error}. To go on with what is left, run it again") from None
    if options.json:
        facts = plan_facts(outcome.plan, rate=options.throttle)
        print_json(
            {
                "moved": outcome.moved,
                "copied_bytes": outcome.copied_bytes,
                "given_up": list(outcome.given_up),
                "spread": facts["before"],
                "remarks": facts["remarks"],
            }
        )
    else:
        print(f"{count_text(outcome.moved, 'partition')} moved, {outcome.copied_bytes:,} bytes copied")
        for line in (*outcome.given_up, *outcome.plan.remarks):
            print(line)
    return 1 if outcome.given_up else 0


async def _stop(cluster: Cluster, options: argparse.Namespace) -> int:
    try:
        count = await make_runner(cluster, options).stop(cancel=options.cancel)
    except BalanceError as error:
        raise CommandError(f"{error}. Run it again to go on waiting") from None
    if options.json:
        print_json({"moves": count, "cancelled": options.cancel})
    else:
        print(f"stopped: {count_text(count, 'move')} had been under way, the throttles are gone")
    return 0
