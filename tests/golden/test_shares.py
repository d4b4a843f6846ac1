"""Share groups as Apache Kafka 4.3.0 serves them: the same requests, right and wrong, are given the same deliveries,
counts and codes. `shares/kafka.json` is what a single Kafka broker did in `shares.scenarios`."""

import json

import pytest

from tests.golden.shares.members import Queue
from tests.golden.shares.record import RECORDED
from tests.golden.shares.scenarios import SCENARIOS, SETTINGS, Scenario
from tests.unit.broker.world import running

KAFKA = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_queue_is_served_as_kafka_serves_it(scenario: Scenario) -> None:
    async with running(SETTINGS) as world:
        queue = Queue(world.connect, scenario.__name__.replace("_", "-"))
        await queue.prepare()
        await scenario(queue)
    ours = json.loads(json.dumps(queue.told))
    theirs = KAFKA[scenario.__name__]
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []
