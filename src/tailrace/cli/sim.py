"""`tailrace sim`: runs a simulated cluster under faults that a seed decides, and tells what happened."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.sim.scenario import Outcome

DESCRIPTION = (
    "Run a cluster in virtual time, on a simulated network and simulated disks, under faults that the "
    "seed decides, and check what it promises after every step. The same seed gives the same run."
)
EXAMPLES = """\
examples:
  tailrace sim 7
  tailrace sim 1 --count 1000 --quiet
  tailrace sim 7 --damage
  tailrace sim 7 --rights
  tailrace sim 7 --logins
  tailrace sim 7 --tier
  tailrace sim 7 --machines
"""


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("seed", type=int, metavar="SEED", help="any number")
    parser.add_argument("--count", type=int, default=1, metavar="N", help="run N seeds, from SEED on, over all cores")
    parser.add_argument("--damage", action="store_true", help="disks lose what they had stored, one at a time")
    parser.add_argument("--rights", action="store_true", help="with an authorizer; ACLs come and go, and are tried")
    parser.add_argument(
        "--logins", action="store_true", help="--rights, and listeners that ask who comes; users change"
    )
    parser.add_argument("--tier", action="store_true", help="topics have remote storage, in a bucket with faults")
    parser.add_argument("--machines", action="store_true", help="brokers share machines, which are lost as a whole")
    parser.add_argument("--quiet", action="store_true", help="print the outcome of each seed alone")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    kinds = {
        "has_damage": options.damage,
        "has_rights": options.rights,
        "has_logins": options.logins,
        "has_tier": options.tier,
        "has_machines": options.machines,
    }
    if options.count > 1:
        run_seed = partial(_run_seed, **kinds)
        return _run_swarm(range(options.seed, options.seed + options.count), run_seed)
    from tailrace.sim.scenario import Scenario

    echo = None if options.quiet else print
    outcome = Scenario(options.seed, **kinds, echo=echo).run()
    print(_describe(outcome, is_traced=not options.quiet))
    return 1 if outcome.failure else 0


def _run_swarm(seeds: range, run_seed: Callable[[int], Outcome]) -> int:
    import multiprocessing

    failed = []
    with multiprocessing.Pool() as pool:
        for outcome in pool.imap_unordered(run_seed, seeds):
            print(_describe(outcome, is_traced=False), flush=True)
            if outcome.failure:
                failed.append(outcome.seed)
    print(f"{len(seeds)} seeds, {len(failed)} failed" + (f": {' '.join(map(str, sorted(failed)))}" if failed else ""))
    return 1 if failed else 0


def _run_seed(seed: int, **kinds: bool) -> Outcome:
    from tailrace.sim.scenario import Scenario

    return Scenario(seed, **kinds).run()  # type: ignore[arg-type]


def _describe(outcome: Outcome, *, is_traced: bool) -> str:
    head = f"seed {outcome.seed}: {outcome.virtual_seconds:.1f} s, {outcome.turns} turns, {outcome.story}"
    head += f", trace {outcome.digest}"
    if outcome.failure is None:
        return head + ": ok"
    events = "" if is_traced else "".join(f"\n  {line}" for line in outcome.lines[-40:])
    return f"{head}: FAILED{events}\n  broken: {outcome.failure}\n  again: {outcome.command}"
