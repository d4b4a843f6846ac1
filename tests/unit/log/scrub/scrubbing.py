"""Segments that are damaged on the simulated disk, checked and copied."""

from collections.abc import Generator
from typing import Any

from tailrace.log.files.segment import Segment
from tailrace.log.log import Log
from tailrace.log.scrub.check import Outcome, SegmentCheck
from tests.unit.log.storage import World, make_batch


def filled(world: World, *, batches: int = 12, records: int = 2, epochs: int = 3) -> Log:
    """A closed segment of many batches in several leader epochs, and an active one."""
    log = world.open()
    for number in range(batches):
        value = bytes([number]) * 50
        batch = make_batch(records, timestamp=1000 + 10 * number, value=value)
        log.append_as_leader(batch, leader_epoch=number * epochs // batches)
    log.roll()
    log.append_as_leader(make_batch(records), leader_epoch=epochs)
    return log


def run(steps: Generator[Any, Any, Any]) -> Any:
    """To their end, with the work done at once."""
    result: object = None
    try:
        while True:
            work = steps.send(result)
            result = work() if work is not None else None
    except StopIteration as end:
        return end.value


def check(
    world: World,
    log: Log,
    segment: Segment | None = None,
    *,
    is_gapless: bool = True,
    probed_offset: int | None = None,
) -> Outcome:
    segment = segment or log.segments[0]
    following = next((each for each in log.segments if each.base_offset > segment.base_offset), None)
    outcome = run(
        SegmentCheck(
            world.disk,
            segment,
            end_offset=log.log_end_offset if following is None else following.base_offset,
            is_closed=following is not None,
            is_gapless=is_gapless,
            leader_epoch_at=log.epochs.epoch_for,
            is_present=lambda: segment in log.segments,
            probed_offset=probed_offset,
        ).steps()
    )
    assert isinstance(outcome, Outcome)
    return outcome


def content(world: World, path: str) -> bytearray:
    """What lies on the disk, to be changed."""
    return world.disk.open(path)._content.data
