"""`tailrace dlq list` and `show`."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from tailrace.cli import CommandError
from tailrace.cli.output import note, print_json, print_rows
from tailrace.cli.records import Shape, record_json
from tailrace.cli.times import time_text
from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.kit.letters.desk import Desk
from tailrace.kit.letters.letter import Choice, Letter

_SUFFIX = ".dlq"
_SHOWN_CHARACTERS = 100


async def list_letters(cluster: Cluster, options: argparse.Namespace) -> int:
    if options.topic is None:
        return await _list_topics(cluster, options)
    choice = choice_of(cluster, options)
    found: list[Letter] = []
    is_cut = False
    async with opened(cluster, options) as desk, aclosing(desk.waiting()) as letters:
        async for letter in letters:
            if choice.takes(letter):
                is_cut = len(found) == options.limit
                if is_cut:
                    break
                found.append(letter)
    print_letters(found, options)
    if is_cut:
        note(f"there are more than {options.limit}: show them by --limit")
    return 0


async def _list_topics(cluster: Cluster, options: argparse.Namespace) -> int:
    names = sorted(topic.name for topic in await Admin(cluster).topics() if topic.name.endswith(_SUFFIX))
    counts = {name: await _count(cluster, name, options) for name in names}
    if options.json:
        for name, count in counts.items():
            print_json({"topic": name, "letters": count})
    else:
        print_rows(("topic", "letters"), counts.items())
    return 0


async def _count(cluster: Cluster, name: str, options: argparse.Namespace) -> int:
    options = argparse.Namespace(**{**vars(options), "topic": name})
    choice, count = choice_of(cluster, options), 0
    async with opened(cluster, options) as desk, aclosing(desk.waiting()) as letters:
        async for letter in letters:
            count += choice.takes(letter)
    return count


async def show_letters(cluster: Cluster, options: argparse.Namespace) -> int:
    choice, wanted = choice_of(cluster, options), set(options.places)
    async with opened(cluster, options) as desk, aclosing(desk.waiting()) as letters:
        async for letter in letters:
            place = (int(letter.partition.partition), letter.record.offset)
            if choice.takes(letter):
                wanted.discard(place)
                _show(letter, options)
    if wanted:
        missing = ", ".join(f"{partition}:{offset}" for partition, offset in sorted(wanted))
        raise CommandError(
            f"no letter waits in {options.topic} at {missing}: it was settled, or moved when others were. "
            f"See: tailrace dlq list {options.topic}"
        )
    return 0


def _show(letter: Letter, options: argparse.Namespace) -> None:
    if options.json:
        print_json({**letter_json(letter), "stack": letter.stack, "record": _record(letter)})
        return
    topic, partition, offset, _ = letter.trail.origin
    print(f"letter     {letter.partition} at offset {letter.record.offset}")
    print(f"came from  {topic}-{partition} at offset {offset}")
    print(f"group      {letter.trail.group or '-'}")
    print(f"failed     {time_text(letter.failed_ms)}, after {letter.trail.attempts} attempts")
    print(f"error      {letter.error_class}: {letter.error_message}")
    print(f"record     {_record(letter)}")
    if letter.stack:
        print(f"\n{letter.stack}")


def _record(letter: Letter) -> str:
    return record_json(letter.partition.topic, letter.partition.partition, letter.record, Shape())


def print_letters(letters: list[Letter], options: argparse.Namespace) -> None:
    if options.json:
        for letter in letters:
            print_json(letter_json(letter))
        return
    print_rows(
        ("letter", "failed (UTC)", "group", "came from", "attempts", "key", "error"),
        [
            (
                f"{letter.partition.partition}:{letter.record.offset}",
                time_text(letter.failed_ms),
                letter.trail.group,
                "{}-{}@{}".format(*letter.trail.origin),
                letter.trail.attempts,
                None if letter.record.key is None else _short(letter.record.key.decode(errors="replace")),
                _short(f"{letter.error_class}: {letter.error_message}"),
            )
            for letter in letters
        ],
    )


def letter_json(letter: Letter) -> dict[str, Any]:
    topic, partition, offset, _ = letter.trail.origin
    return {
        "partition": letter.partition.partition,
        "offset": letter.record.offset,
        "failed": letter.failed_ms,
        "group": letter.trail.group,
        "origin": {"topic": topic, "partition": partition, "offset": offset},
        "attempts": letter.trail.attempts,
        "replays": letter.trail.replays,
        "error": {"class": letter.error_class, "message": letter.error_message},
    }


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"


@asynccontextmanager
async def opened(cluster: Cluster, options: argparse.Namespace) -> AsyncIterator[Desk]:
    desk = Desk(cluster, options.topic, timeout_ms=int(options.timeout * 1000))
    try:
        yield desk
    finally:
        desk.close()


def choice_of(cluster: Cluster, options: argparse.Namespace) -> Choice:
    now = cluster.ports.clock.wall_ms()
    return Choice(
        group=options.group,
        origin_topic=options.origin_topic,
        error=options.error,
        key=None if options.key is None else options.key.encode("utf-8", "surrogateescape"),
        since_ms=None if options.since is None else options.since.timestamp_ms(now),
        until_ms=None if options.until is None else options.until.timestamp_ms(now),
        places=frozenset(getattr(options, "places", ())),
    )
