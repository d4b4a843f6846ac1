"""`tailrace plan`: how many brokers, cores, disks and how much network a workload needs, with every assumption."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.cli import CommandError
from tailrace.cli.output import note, print_rows
from tailrace.cli.plan.units import parse_bandwidth, parse_duration, parse_rate, parse_size

if TYPE_CHECKING:
    from tailrace.cli.plan.figures import Figures
    from tailrace.cli.plan.sizing import Plan, Workload
    from tailrace.cli.plan.tier import TierCost

T = TypeVar("T")

DESCRIPTION = (
    "Say how many brokers, cores and partitions, how much memory, disk and network a workload needs, "
    "and what was assumed."
)
EXAMPLES = """\
examples:
  tailrace plan --rate 1M/s --size 1KB --retention 7d --replication 3 --fanout 3
  tailrace plan --rate 1T/day --size 200B --retention 1d --compression 4 --disk 30TB --network 25Gbit/s
  tailrace plan --rate 50k/s --size 1KB --retention 365d --local-retention 1d --tier-prices prices.json
  tailrace plan --calibrate --save here.json
  tailrace plan --rate 50k/s --size 2KB --retention 30d --figures here.json --json

What a broker costs was measured on one machine (docs/planning.md). --calibrate measures this one, in less than a
minute; it should have nothing else to do meanwhile.
"""


def register(parser: argparse.ArgumentParser) -> None:
    work = parser.add_argument_group("the workload")
    work.add_argument("--rate", type=parse_rate, metavar="RATE", help="messages, such as 1M/s or 86.4B/day")
    work.add_argument("--size", type=parse_size, metavar="SIZE", help="of a message, such as 1KB or 1KiB")
    work.add_argument("--retention", type=parse_duration, metavar="TIME", help="how long they are kept, such as 7d")
    work.add_argument("--replication", type=_count, default=3, metavar="N", help="copies of each (default: 3)")
    work.add_argument("--fanout", type=_count_or_none, default=1, metavar="N", help="groups that read all (default: 1)")
    work.add_argument("--batch", type=parse_size, default=65_536.0, metavar="SIZE", help="of a batch (default: 64KiB)")
    work.add_argument("--compression", type=_factor, default=1.0, metavar="X", help="to 1/X of the size (default: 1)")
    work.add_argument("--clients", type=_count, default=1_000, metavar="N", help="connected clients (default: 1,000)")
    work.add_argument(
        "--lag", type=parse_duration, default=300.0, metavar="TIME", help="read from memory (default: 5m)"
    )
    machine = parser.add_argument_group("the machine, and what each broker has of it")
    machine.add_argument("--cores", type=_count, default=2, metavar="N", help="of it; two for each broker (default: 2)")
    machine.add_argument("--disk", type=parse_size, default=16e12, metavar="SIZE", help="its space (default: 16TB)")
    machine.add_argument(
        "--network", type=parse_bandwidth, default=1.25e9, metavar="SPEED", help="each way (default: 10Gbit/s)"
    )
    machine.add_argument("--busy", type=_share, default=0.5, metavar="SHARE", help="to be used of it (default: 0.5)")
    machine.add_argument(
        "--spare", type=_count_or_none, default=1, metavar="N", help="machines that may be down (default: 1)"
    )
    tier = parser.add_argument_group("tiered storage, where there is any")
    tier.add_argument("--tier-prices", metavar="FILE", help="what the store asks for, as JSON: adds the cost a month")
    tier.add_argument(
        "--local-retention",
        type=parse_duration,
        metavar="TIME",
        help="how long brokers keep it (default: all the time)",
    )
    tier.add_argument(
        "--history-reads", type=_reads, metavar="N", help="how often a month all history is read (default: 0.1)"
    )
    figures = parser.add_argument_group("what a broker costs")
    figures.add_argument("--calibrate", action="store_true", help="measure it here, in less than a minute")
    figures.add_argument("--save", metavar="FILE", help="keep what was measured, for --figures")
    figures.add_argument("--figures", metavar="FILE", help="count with what --save has kept")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.set_defaults(run=run, usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    missing = [name for name in ("rate", "size", "retention") if getattr(options, name) is None]
    if missing and not (options.calibrate and len(missing) == 3):
        options.usage_error(f"the workload needs {', '.join(f'--{name}' for name in missing)} as well")
    if options.save and not options.calibrate:
        options.usage_error("--save keeps what --calibrate measures: give both")
    figures = _figures(options)
    if missing:
        _print_figures(figures, as_json=options.json)
        return 0
    cost_of = _tier_cost(options)
    from tailrace.cli.plan.sizing import Machine, Workload, decide_plan

    workload = Workload(
        messages_per_s=options.rate,
        message_bytes=options.size,
        retention_s=options.retention,
        replication=options.replication,
        fanout=options.fanout,
        batch_bytes=options.batch,
        compression=options.compression,
        clients=options.clients,
        lag_s=options.lag,
    )
    machine = Machine(options.cores, options.disk, options.network, options.busy, spare=options.spare)
    local_s = workload.retention_s if options.local_retention is None else options.local_retention
    plan = decide_plan(workload._replace(retention_s=min(local_s, workload.retention_s)), machine, figures)
    cost = cost_of(workload) if cost_of is not None else None
    if options.json:
        tier = {"tier": cost.to_json() | {"retention_s": workload.retention_s}} if cost is not None else {}
        print(json.dumps(plan.to_json() | tier, indent=2))
    else:
        _print(plan)
        if cost is not None:
            _print_cost(cost)
    return 0


def _tier_cost(options: argparse.Namespace) -> Callable[[Workload], TierCost] | None:
    """None without prices."""
    if options.tier_prices is None:
        if options.local_retention is not None or options.history_reads is not None:
            options.usage_error("--local-retention and --history-reads are for a tier: give --tier-prices too")
        return None
    from tailrace.cli.plan.tier import Prices, TierUse, decide_cost

    prices = _read_figures(options.tier_prices, Prices.parse, "the prices of a store")
    use = TierUse() if options.history_reads is None else TierUse(history_reads=options.history_reads)
    return lambda workload: decide_cost(workload, use, prices)


def _figures(options: argparse.Namespace) -> Figures:
    from tailrace.cli.plan.figures import DEFAULT_FIGURES

    figures = DEFAULT_FIGURES
    if options.figures:
        figures = _loaded(figures, options.figures)
    if options.calibrate:
        if options.save:
            _check_writable(options.save)
        values = _calibrated()
        figures = figures.measured(values, "measured here now")
        if options.save:
            with open(options.save, "w", encoding="utf-8") as file:
                file.write(json.dumps(values, indent=2) + "\n")
            note(f"kept in {options.save}: give it to --figures")
    return figures


def _calibrated() -> dict[str, float]:
    from tailrace.cli.plan.calibration import calibrate
    from tailrace.model.errors import KafkaError
    from tailrace.testing import BrokerFailedError

    try:
        return calibrate(note)
    except (BrokerFailedError, KafkaError, OSError) as error:
        raise CommandError(f"this machine could not be measured: {error}") from None


def _loaded(figures: Figures, path: str) -> Figures:
    return _read_figures(path, lambda values: figures.measured(values, f"measured, {path}"), "what --save keeps")


def _read_figures(path: str, parse: Callable[[dict[str, Any]], T], what: str) -> T:
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
        if not isinstance(values, dict):
            raise ValueError("it is no JSON object")
        return parse(values)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(f"{path} does not hold {what}: {error}") from None


def _check_writable(path: str) -> None:
    """Before a minute is spent."""
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None


def _print(plan: Plan) -> None:
    from tailrace.cli.plan.sizing import CONTROLLERS, CORES_PER_BROKER, assumptions
    from tailrace.cli.plan.units import rate_text, size_text

    workload = plan.workload
    each = plan.brokers
    print_rows(
        ("what", "total", "each broker"),
        (
            ("brokers", f"{plan.brokers:,}", f"decided by {plan.decided_by}"),
            ("machines", f"{plan.machines:,}", f"brokers on each: {plan.machine.brokers}"),
            ("cores", f"{plan.cores:,}", CORES_PER_BROKER),
            ("memory", size_text(plan.memory_bytes * each), f"{size_text(plan.memory_bytes)}, most of it page cache"),
            ("disk", size_text(plan.stored), size_text(plan.stored / each)),
            ("disk, a day", size_text(plan.stored_per_day), size_text(plan.stored_per_day / each)),
            ("network in", f"{size_text(plan.network_in)}/s", f"{size_text(plan.network_in / each)}/s"),
            ("network out", f"{size_text(plan.network_out)}/s", f"{size_text(plan.network_out / each)}/s"),
            ("partitions", f"{plan.partitions:,}", f"{plan.partitions * workload.replication / each:,.0f} replicas"),
            ("controllers", CONTROLLERS, ""),
        ),
        title=f"{rate_text(workload.messages_per_s)} of {size_text(workload.message_bytes)}",
    )
    print()
    print_rows(
        ("resource", "brokers", "since it needs", "and there is"),
        ((need.resource, need.brokers, _amount(need.total, need.unit), need.reason) for need in plan.needs),
        title="How many brokers each resource asks for",
    )
    print("\nAssumed:")
    for sentence in assumptions(plan):
        print(f"- {sentence}")


def _print_cost(cost: TierCost) -> None:
    from tailrace.cli.plan.units import size_text

    print()
    print_rows(
        ("what", "a month", "cost"),
        (
            ("storage", size_text(cost.stored_bytes), f"{cost.storage:,.2f}"),
            ("PUT", f"{cost.puts:,.0f}", f"{cost.put:,.2f}"),
            ("GET", f"{cost.gets:,.0f}", f"{cost.get:,.2f}"),
            ("egress", size_text(cost.read_bytes), f"{cost.egress:,.2f}"),
            ("total", "", f"{cost.total:,.2f}"),
        ),
        title="What the tier costs, in the currency of the prices",
    )


def _amount(total: float, unit: str) -> str:
    from tailrace.cli.plan.units import size_text

    if unit == "B":
        return size_text(total)
    if unit == "B/s":
        return f"{size_text(total)}/s"
    return f"{total:,.1f} {unit}" if total != int(total) else f"{int(total):,} {unit}"


def _print_figures(figures: Figures, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures.to_json(), indent=2))
    else:
        rows = ((name, f"{each.value:.4g}", each.unit, each.meaning) for name, each in figures._asdict().items())
        print_rows(("figure", "value", "unit", "meaning"), rows)


def _count(text: str) -> int:
    if (count := _count_or_none(text)) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return count


def _count_or_none(text: str) -> int:
    plain = text.replace(",", "").replace("_", "")
    if not plain.isascii() or not plain.isdigit() or len(plain) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(plain)


def _factor(text: str) -> float:
    return _number(text, 1.0, 1_000.0)


def _share(text: str) -> float:
    return _number(text.removesuffix("%"), 1.0, 100.0) / 100 if text.endswith("%") else _number(text, 0.01, 1.0)


def _reads(text: str) -> float:
    return _number(text, 0.0, 100_000.0)


def _number(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")
    return value
