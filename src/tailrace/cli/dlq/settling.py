"""`tailrace dlq replay` and `drop`."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import aclosing

from tailrace.cli import CommandError
from tailrace.cli.dlq.reading import choice_of, opened
from tailrace.cli.output import count_text, print_json, print_rows
from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.kit.letters.desk import Target
from tailrace.kit.letters.letter import Choice, Letter

_NOWHERE = "(dropped)"


async def replay_letters(cluster: Cluster, options: argparse.Namespace) -> int:
    def target(letter: Letter) -> str:
        return str(options.to or letter.trail.origin.topic)

    return await _settle(cluster, options, target)


async def drop_letters(cluster: Cluster, options: argparse.Namespace) -> int:
    return await _settle(cluster, options, lambda _letter: None)


async def _settle(cluster: Cluster, options: argparse.Namespace, target: Target) -> int:
    choice = choice_of(cluster, options)
    if choice == Choice() and not options.all:
        raise CommandError(f"which letters of {options.topic}? Give PARTITION:OFFSET, a filter, or --all")
    counts: Counter[str] = Counter()
    async with opened(cluster, options) as desk:
        async with aclosing(desk.waiting()) as letters:
            async for letter in letters:
                if choice.takes(letter):
                    counts[target(letter) or _NOWHERE] += 1
        await _check(cluster, options.topic, counts)
        if not options.execute:
            _tell(counts, options)
            return 0
        settled = await desk.settle(choice.takes, target)
    if options.json:
        print_json(settled._asdict())
    else:
        told = [f"{count_text(settled.replayed, 'letter')} replayed"] if settled.replayed else []
        told += [f"{count_text(settled.dropped, 'letter')} dropped"] if settled.dropped else []
        print(", ".join(told) or "no letter is so")
    return 0


async def _check(cluster: Cluster, topic: str, counts: Counter[str]) -> None:
    known = {each.name for each in await Admin(cluster).topics()}
    for name in counts:
        if name == topic:
            raise CommandError(
                f"{counts[name]} of the letters do not say where they came from: name a topic by --to TOPIC"
            )
        if name not in known and name != _NOWHERE:
            raise CommandError(f"there is no topic {name} any more: name another one by --to TOPIC")


def _tell(counts: Counter[str], options: argparse.Namespace) -> None:
    if options.json:
        print_json({"letters": dict(counts), "executed": False})
        return
    print_rows(("goes to", "letters"), sorted(counts.items()))
    print("nothing was done yet: add --execute" if counts else "no letter is so")
