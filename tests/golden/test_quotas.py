"""Quotas of clients as Apache Kafka 4.3.0 keeps them: the same requests get the same codes in the same places, and the
same is told of them afterwards. `quotas/kafka.json` is what a single Kafka broker answered to `quotas.questions`.
"""

import gzip
import json
from pathlib import Path

import pytest

from tailrace.broker.quotas.windows import Bucket, Rate, Windows
from tests.golden.quotas.questions import ask_all
from tests.unit.broker.world import running

RECORDED = Path(__file__).parent / "quotas"
KAFKA = json.loads((RECORDED / "kafka.json").read_text())
ARITHMETIC = [
    json.loads(line) for line in gzip.decompress((RECORDED / "arithmetic.jsonl.gz").read_bytes()).splitlines()
]


async def test_answers_are_kafkas() -> None:
    async with running() as world:
        ours = await ask_all(await world.connect())
    assert ours.keys() == KAFKA.keys()
    assert {label: (answer, KAFKA[label]) for label, answer in ours.items() if answer != KAFKA[label]} == {}


@pytest.mark.parametrize("kind", ["rate", "permissive", "strict"])
def test_arithmetic_is_kafkas(kind: str) -> None:
    """`quotas/arithmetic.jsonl.gz` is what Kafka's own classes made of random use, by `quotas/Arithmetic.java`."""
    for used, samples, seconds, bound, events in ARITHMETIC:
        if used != kind:
            continue
        windows = Windows(samples, seconds * 1000.0)
        rate, bucket = Rate(windows), Bucket(windows)
        ours = []
        for now_ms, value, _throttle_ms in events:
            if kind == "rate":
                rate.note(value, now_ms)
                ours.append(rate.throttle_ms(bound, now_ms))
            elif kind == "permissive":
                ours.append(bucket.take(value, bound, now_ms))
            else:
                ours.append(bucket.ask(value, bound, now_ms))
        assert ours == [throttle_ms for *_, throttle_ms in events]
