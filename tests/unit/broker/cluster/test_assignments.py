"""Telling the controller where replicas lie."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tailrace.broker.cluster.assignments import DirectoryAssignments
from tailrace.controller.image import PartitionImage, TopicImage
from tailrace.model.ids import NodeId, Uuid

_NODE = NodeId(1)
_PARTITION = PartitionImage((_NODE,), (_NODE,), _NODE, 0, 0)


async def test_thousands_of_logs_that_are_not_open_yet_leave_the_loop_to_others() -> None:
    topic = TopicImage("many", Uuid(bytes(16)), dict.fromkeys(range(7_000), _PARTITION))
    image: Any = SimpleNamespace(topics={"many": topic})
    looks = 0

    class NoLogs:
        def __iter__(self) -> Any:
            nonlocal looks
            looks += 1
            assert looks < 20_000, "it looks again and again, and nobody else gets to open a log"
            return iter(())

    directories: Any = NoLogs()
    forwarding: Any = None
    assignments = DirectoryAssignments(_NODE, directories, forwarding, image=lambda: image, broker_epoch=lambda: 1)
    assignments.start()
    await asyncio.sleep(0.05)
    await assignments.close()

    assert 0 < looks <= 2_250
