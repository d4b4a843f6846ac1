"""Leads the scenarios of share groups in front of Apache Kafka, and writes down what it did, into kafka.json:

PYTHONPATH=src python -m tests.golden.shares.record CLASS_PATH
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.apache_kafka import ApacheKafka
from tests.golden.shares.members import Queue
from tests.golden.shares.scenarios import SCENARIOS, SETTINGS
from tests.unit.broker.world import Peer

RECORDED = Path(__file__).with_name("kafka.json")


async def record(class_path: str) -> None:
    # The share-state requests are for brokers alone, unless this is set.
    settings = SETTINGS | {"unstable.api.versions.enable": "true"}
    with tempfile.TemporaryDirectory() as folder, ApacheKafka(class_path, Path(folder), settings=settings) as kafka:

        async def connect() -> Peer:
            host, _, port = kafka.bootstrap.rpartition(":")
            return Peer(*await asyncio.open_connection(host, int(port)))

        told = {}
        for scenario in SCENARIOS:
            queue = Queue(connect, scenario.__name__.replace("_", "-"))
            await queue.prepare()
            await scenario(queue)
            told[scenario.__name__] = queue.told
    RECORDED.write_text(written(told))


def written(told: dict[str, list[object]]) -> str:
    scenarios = [
        f"{json.dumps(name)}: [\n" + ",\n".join(f" {json.dumps(each)}" for each in lines) + "\n]"
        for name, lines in told.items()
    ]
    return "{\n" + ",\n".join(scenarios) + "\n}\n"


if __name__ == "__main__":
    asyncio.run(record(*sys.argv[1:]))
