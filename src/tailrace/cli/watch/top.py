"""`tailrace top`: a cluster at a glance, again and again; or once, for a pipe.

What is wrong stands in red in the first lines. Clients are those that push their own metrics.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.output import print_json
from tailrace.cli.session import positive_seconds
from tailrace.cli.watch.targets import add_target_options, scraper_of, targets_of

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from tailrace.apps.scrape import Reading
    from tailrace.apps.top.overview import Hot, Overview

DESCRIPTION = "Watch rates, lag, hot partitions, slow requests and clients of a cluster in the terminal."
EXAMPLES = """\
examples:
  tailrace top --data ./data                     the cluster of `tailrace up --data ./data`
  tailrace top --target one:9404 --target two:9404
  tailrace top --data ./data --once --json       one look, for a program
"""


def register(parser: argparse.ArgumentParser) -> None:
    add_target_options(parser)
    parser.add_argument(
        "--every", type=positive_seconds, default=2.0, metavar="SECONDS", help="time between two looks (default: 2)"
    )
    parser.add_argument("--once", action="store_true", help="one look, and end")
    parser.add_argument("--json", action="store_true", help="as JSON, a line for each look")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        return asyncio.run(_watch(options))
    except KeyboardInterrupt:
        return 0


async def _watch(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.live import Live

    from tailrace.apps.top.overview import overview

    before = await _read(options)
    if options.json or options.once:
        while True:
            await asyncio.sleep(options.every)
            now = await _read(options)
            told = overview(before, now)
            if options.json:
                print_json(told.to_json())
            else:
                Console(highlight=False).print(_picture(told))
            if options.once:
                return 0
            before = now
    with Live(_picture(overview(before, before)), screen=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(options.every)
            now = await _read(options)
            live.update(_picture(overview(before, now)), refresh=True)
            before = now


async def _read(options: argparse.Namespace) -> list[Reading]:
    from tailrace.apps.scrape import TargetsError, read_targets

    try:
        return await scraper_of(options).read(read_targets(targets_of(options)))
    except TargetsError as error:
        raise CommandError(str(error)) from None


# ---- what is seen


def _picture(told: Overview) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Text | Table] = [Text.assemble(*_head(told)), _nodes(told)]
    for title, found in (
        ("hot partitions", told.hot_partitions),
        ("groups", told.groups),
        ("slow requests", told.slow_requests),
        ("clients", told.clients),
    ):
        if found:
            parts.append(_hot(title, found))
    return Group(*parts)


def _head(told: Overview) -> list[tuple[str, str]]:
    def alarm(count: float, what: str) -> tuple[str, str]:
        return f"  {count:g} {what}", "bold red" if count else "dim"

    down = sum(not node.is_up for node in told.nodes)
    controller = ("", "") if told.controllers else ("  no controller", "bold red")
    rates = f"{told.records_in:,.0f} records/s  in {_bytes(told.bytes_in)}/s  out {_bytes(told.bytes_out)}/s"
    return [
        (f"{told.topics:g} topics, {told.partitions:g} partitions   {rates}\n", "bold"),
        alarm(down, "nodes down"),
        alarm(told.offline, "partitions offline"),
        alarm(told.under_min_isr, "under min ISR"),
        alarm(told.under_replicated, "under-replicated"),
        controller,
        ("\n", ""),
    ]


def _nodes(told: Overview) -> Table:
    table = _table("node", "address", "records/s", "in/s", "out/s", "requests/s", "conns", "leaders", "loop lag")
    for node in told.nodes:
        if not node.is_up:
            table.add_row("", node.instance, f"down: {node.problem}", style="red")
            continue
        numbers = (f"{node.records_in:,.0f}", _bytes(node.bytes_in), _bytes(node.bytes_out), f"{node.requests:,.0f}")
        leaders = f"{node.leaders:g}/{node.partitions:g}"
        lag = f"{node.loop_lag_ms:.1f} ms"
        table.add_row(node.node, node.instance, *numbers, f"{node.connections:g}", leaders, lag)
    return table


def _hot(title: str, found: list[Hot]) -> Table:
    keys = list(dict.fromkeys(key for each in found for key in each.values))
    table = _table(title, *keys)
    for each in found:
        table.add_row(each.name, *(_number(each.values.get(key, 0.0)) for key in keys))
    return table


def _table(first: str, *others: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for each in others:
        table.add_column(each, justify="left" if each == "address" else "right")
    return table


def _number(value: float) -> str:
    """Counts are whole, times and rates are not."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
