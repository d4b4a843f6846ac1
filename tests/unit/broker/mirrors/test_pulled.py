"""What a mirror takes of an answer of its source, and what it does not."""

import pytest

from tailrace.broker.mirrors.pulled import Pulled
from tailrace.controller.image import MirrorState, MirrorTopic
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tests.unit.replica.leading.test_mirrors import MIRRORED, foreign, lead, mirror

ROLE = MirrorTopic(Uuid(b"l" * 16), "orders", Uuid(b"o" * 16), MirrorState.MIRRORING)


def pulled() -> Pulled:
    found = Pulled(mirror(epoch=7), ROLE)
    ask(found)
    return found


def ask(found: Pulled) -> None:
    found.asked_offset, found.asked_epoch = found.partition.log.log_end_offset, found.partition.leader_epoch


def take(found: Pulled, *batches: memoryview, high_watermark: int, start: int = 0) -> int:
    records = memoryview(b"".join(batches))
    return found.take(records, high_watermark=high_watermark, log_start_offset=start, now_ms=1000)


def end_of(found: Pulled) -> int:
    return found.partition.log.log_end_offset


async def test_whole_batches_are_taken_and_one_that_is_cut_short_is_not():
    found = pulled()
    whole = foreign(0, 3, count=2)
    assert take(found, whole, foreign(2, 3)[:-5], high_watermark=9) == len(whole)
    assert (end_of(found), found.source_end) == (2, 9)


@pytest.mark.parametrize("high_watermark", [1, 2])
async def test_nothing_from_the_high_watermark_on_is_taken(high_watermark):
    """Whatever the source sends: it may lie, or be broken."""
    found = pulled()
    with pytest.raises(KafkaError) as raised:
        take(found, foreign(0, 3), foreign(1, 3, count=2), high_watermark=high_watermark)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert end_of(found) == 0


async def test_what_is_here_already_is_passed_over():
    found = pulled()
    take(found, foreign(0, 3), high_watermark=3)
    ask(found)
    take(found, foreign(0, 3), foreign(1, 3), high_watermark=3)
    assert end_of(found) == 2


async def test_a_batch_of_a_later_epoch_waits_until_ours_is_as_high():
    found = pulled()
    take(found, foreign(0, 7), foreign(1, 9), high_watermark=2)
    assert (end_of(found), found.needed_epoch, found.is_ready(2000)) == (1, 9, False)
    lead(found.partition, 9, MIRRORED)
    assert found.is_ready(2000)
    ask(found)
    take(found, foreign(1, 9), high_watermark=2)
    assert end_of(found) == 2


async def test_records_of_old_formats_stop_it_with_a_text():
    found = pulled()
    old = bytearray(foreign(1, 3))
    old[16] = 1
    take(found, foreign(0, 3), memoryview(old), high_watermark=2)
    assert (end_of(found), found.is_stopped) == (1, True)
    assert "magic 0 or 1" in (found.problem or "")


async def test_an_answer_to_what_was_asked_before_a_new_leader_epoch_is_dropped():
    found = pulled()
    lead(found.partition, 8, MIRRORED)
    assert take(found, foreign(0, 3), high_watermark=1) == 0
    assert end_of(found) == 0


async def test_damage_on_the_way_writes_nothing():
    found = pulled()
    damaged = bytearray(foreign(0, 3))
    damaged[-1] ^= 1
    with pytest.raises(KafkaError):
        take(found, memoryview(damaged), high_watermark=1)
    assert end_of(found) == 0


async def test_it_is_caught_up_when_it_has_what_the_source_has():
    found = pulled()
    take(found, foreign(0, 3), high_watermark=2)
    found.note_silence(2000)
    assert found.caught_up_ms is None
    ask(found)
    take(found, foreign(1, 3), high_watermark=2)
    found.note_silence(3000)
    assert found.caught_up_ms == 3000
