"""How fast librdkafka can write: one factor at a time around a base case."""

import random
import time
from typing import Any, NamedTuple

from bench import librdkafka
from bench.versus.processes import Running
from bench.versus.rows import Effort, Row
from bench.versus.workloads.topics import topic

SECTION = "Produce"
COLD_SECTION = "Just started"
COLD_NOTE = (
    "The first seconds of new brokers, as a test meets them that starts one: nothing is compiled yet, and memory comes "
    "as the machine gives it. A broker that stays up is not like that, so there is no ratio: the rows above have it."
)
# In the client's queue at most. What is in it when the time is over has to be written too: a slow broker should not
# need a minute for that.
_QUEUED_MESSAGES = 400_000
_QUEUED_BYTES = 128 << 20


class Case(NamedTuple):
    """The base case is the default of each field."""

    value_bytes: int = 1_000
    batch_bytes: int = 64 << 10
    partitions: int = 6
    acks: str = "all"
    codec: str = "none"


BASE = Case()
# What differs from the base, by the word that names the row, and with how many replicas it is taken.
CASES = {
    "base": (BASE, (1, 3)),
    "100B": (BASE._replace(value_bytes=100), (1, 3)),
    "10KB": (BASE._replace(value_bytes=10_000), (1,)),
    "batch-16KB": (BASE._replace(batch_bytes=16 << 10), (3,)),
    "batch-1MB": (BASE._replace(batch_bytes=1 << 20), (1, 3)),
    "lz4": (BASE._replace(codec="lz4"), (1, 3)),
    "zstd": (BASE._replace(codec="zstd"), (3,)),
    "100-partitions": (BASE._replace(partitions=100), (1,)),
    "acks-1": (BASE._replace(acks="1"), (3,)),
}


def produce(running: Running, effort: Effort, case: Case, replicas: int) -> dict[str, float]:
    """MB/s of values, and what the brokers and the client spent on each GB."""
    with topic(running, case.partitions, replicas=replicas) as name:
        brokers_s, client = running.stopwatch(), time.process_time()
        count, rate = write(running, name, effort.seconds, case)
        gigabytes = count * case.value_bytes / 1e9
        return {
            "": rate * case.value_bytes / 1e6,
            "broker CPU s/GB": brokers_s() / gigabytes,
            "client CPU s/GB": (time.process_time() - client) / gigabytes,
        }


def write(
    running: Running, name: str, seconds: float, case: Case, *, queued_bytes: int = _QUEUED_BYTES, **more: Any
) -> tuple[int, float]:
    """By librdkafka, as fast as it can: how many records, and how many a second, all acknowledged."""
    return librdkafka.produced_per_second(
        name,
        case.value_bytes,
        seconds,
        partitions=case.partitions,
        payloads=_lines(case.value_bytes) if case.codec != "none" else (),
        queued_messages=min(_QUEUED_MESSAGES, queued_bytes // case.value_bytes),
        bootstrap_servers=running.bootstrap,
        acks=case.acks,
        batch_size=case.batch_bytes,
        compression_codec=case.codec,
        message_max_bytes=2_000_000,
        **more,
    )


def _lines(value_bytes: int) -> list[bytes]:
    """Values that compress about as log lines and JSON do, to a third or a quarter."""
    source = random.Random(7)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(3, 10))) for _ in range(400)]
    values = []
    for _ in range(64):
        text = ""
        while len(text) < value_bytes:
            text += f'"{source.choice(words)}":"{source.choice(words)}-{source.randrange(10_000)}",'
        values.append(text[:value_bytes].encode())
    return values


def _row(word: str, case: Case, replicas: int) -> Row:
    differs = "" if case == BASE else f", {word.replace('-', ' ')}"
    return Row(
        name=f"produce-rf{replicas}-{word}",
        title=f"rf={replicas}{differs}",
        section=SECTION,
        unit="MB/s",
        measure=lambda running, effort: produce(running, effort, case, replicas),
        brokers=replicas,
        opens=replicas == 3 and case == BASE,
    )


def _cold_row(replicas: int) -> Row:
    return _row("just-started", BASE, replicas)._replace(
        title=f"produce, rf={replicas}, just started",
        section=COLD_SECTION,
        fresh=True,
        cold=True,
        opens=False,
        rounds_max=2,
        note=COLD_NOTE,
    )


def _synced_row(replicas: int) -> Row:
    row = _row("flush-1", BASE, replicas)
    synced = (("log.flush.interval.messages", "1"),)
    return row._replace(title=f"rf={replicas}, each batch synced", settings=row.settings + synced, opens=False)


PRODUCE = (
    *(_row(word, case, rf) for rf in (1, 3) for word, (case, taken) in CASES.items() if rf in taken),
    *map(_synced_row, (1, 3)),
)
COLD = (_cold_row(1), _cold_row(3))
