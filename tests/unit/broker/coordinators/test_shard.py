"""A machine on its log: when records are written and answers given, and what becomes of both when something fails."""

import asyncio
import errno
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.broker.coordinators.loading import load
from tailrace.coordinator.op import Result
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.wire.apis.groups import OffsetCommitResponse
from tailrace.wire.records import Compression, iterate_headers, read_header
from tests.unit.broker.coordinators.ledger import Desk, error_of, make_call, record, working
from tests.unit.broker.world import World, create_topic, running
from tests.unit.replica.replicas import led_by

FOLLOWER = NodeId(2)
BOTH = (NodeId(1), FOLLOWER)


@asynccontextmanager
async def opened(
    settings: dict[str, str] | None = None, *, is_replicated: bool = False, compression_type: str = "producer"
) -> AsyncIterator[tuple[World, Desk]]:
    async with running(settings) as world:
        peer = await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact", compression_type=compression_type)
        partition = world.broker.replicas.find("t", 0)
        if is_replicated:
            partition.follow_image(led_by(NodeId(1), epoch=1, replicas=BOTH, isr=BOTH))
        desk = Desk(world.broker.node, partition)
        desk.open()
        yield world, desk
        desk.shard.close()


def confirm(desk: Desk) -> None:
    desk.partition.note_fetch(FOLLOWER, 5, offset=desk.partition.log.log_end_offset, log_start_offset=0)


async def turn() -> None:
    """Long enough for everything that is scheduled without a delay."""
    for _ in range(5):
        await asyncio.sleep(0)


async def stored(desk: Desk) -> dict[str, int]:
    """What a new leader would read."""
    again = Desk(desk.shard._node, desk.partition)
    await load(desk.shard._node, again.shard, desk.partition)
    values = dict(again.ledger.values)
    again.shard.close()
    return values


async def test_the_records_of_one_turn_are_one_batch_and_answered_when_they_are_written() -> None:
    async with opened() as (_, desk):
        calls = [desk.ask(name) for name in ("a", "b", "c")]
        assert [error_of(call) for call in calls] == [None] * 3
        assert desk.ledger.values == {"a": 1, "b": 1, "c": 1}, "the next op builds on what the last has decided"
        await turn()
        assert [error_of(call) for call in calls] == [ErrorCode.NONE] * 3
        assert desk.partition.log.log_end_offset == 3
        piece = desk.partition.log.read(0, 1 << 20, end_offset=3, at_least_one_batch=True)
        assert piece is not None
        assert [header.record_count for _, header in iterate_headers(piece.read())] == [3]
        assert await stored(desk) == desk.ledger.values


async def test_an_answer_waits_until_all_that_was_written_before_it_is_committed() -> None:
    async with opened(is_replicated=True) as (_, desk):
        first, read = desk.ask("a"), desk.ask("read")
        await turn()
        late, refused = desk.ask("read"), desk.ask("refuse")
        await turn()
        assert [error_of(call) for call in (first, read, late, refused)] == [None] * 4
        confirm(desk)
        codes = [ErrorCode.NONE] * 3 + [ErrorCode.ILLEGAL_GENERATION]
        assert [error_of(call) for call in (first, read, late, refused)] == codes
        assert error_of(desk.ask("read")) is ErrorCode.NONE, "nothing is left to wait for"


async def test_an_answer_waits_for_records_that_nobody_is_told_of() -> None:
    async with opened(is_replicated=True) as (_, desk):
        first = desk.ask("a")
        await turn()
        desk.shard.decide(lambda _call: [Result([record("of a deadline")])])
        await turn()
        read = desk.ask("read")
        desk.partition.note_fetch(FOLLOWER, 5, offset=1, log_start_offset=0)
        assert (error_of(first), error_of(read)) == (ErrorCode.NONE, None), "only the first record is committed"
        confirm(desk)
        assert error_of(read) is ErrorCode.NONE


async def test_what_was_found_in_the_log_is_waited_for_too() -> None:
    async with opened(is_replicated=True) as (world, desk):
        desk.ask("a")
        await turn()
        again = Desk(world.broker.node, desk.partition)
        await load(world.broker.node, again.shard, desk.partition)
        read = again.ask("read")
        assert (again.ledger.values, error_of(read)) == ({"a": 1}, None)
        confirm(desk)
        assert error_of(read) is ErrorCode.NONE


async def test_parked_callers_are_answered_with_the_op_that_releases_them() -> None:
    async with opened() as (_, desk):
        parked = [desk.ask("park"), desk.ask("park")]
        gone = desk.ask("park")
        gone.abandon()
        await turn()
        assert list(desk.shard._open) == parked, "a machine may forget who is gone, and so does the shard"
        assert error_of(parked[0]) is None
        desk.ask("release")
        await turn()
        assert [error_of(call) for call in parked] == [ErrorCode.NONE] * 2
        assert gone.answer is None


async def test_a_request_that_an_answer_makes_room_for_waits_until_all_results_are_replayed() -> None:
    async with opened() as (_, desk):
        parked, seen = desk.ask("park"), []

        def ask_next(_answer: object) -> None:
            desk.ask("next")
            seen.append(dict(desk.ledger.values))

        parked.deliver_to(ask_next)
        desk.shard.decide(
            lambda _call: [Result(answers=[(parked, OffsetCommitResponse())]), Result([record("decided before")])]
        )
        await turn()
        assert seen == [{}], "it was asked before the second result was replayed"
        assert list(await stored(desk)) == ["decided before", "next"]


async def test_what_is_not_committed_in_time_is_not_confirmed() -> None:
    async with opened({"offsets.commit.timeout.ms": "30"}, is_replicated=True) as (_, desk):
        first = desk.ask("a")
        await asyncio.sleep(0.02)
        second = desk.ask("b")
        await asyncio.sleep(0.02)
        assert error_of(first) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(0.03)
        assert error_of(second) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not desk.partition.produces
        confirm(desk)
        assert error_of(desk.ask("read")) is ErrorCode.NONE
        assert desk.ledger.values == {"a": 1, "b": 1}, "it was written all the same"


async def test_a_write_that_fails_takes_back_what_it_would_have_stored() -> None:
    async with opened() as (world, desk):
        desk.ask("a")
        await turn()
        parked = desk.ask("park")
        world.disk.fail("append", "*/t-0/*.log", error=errno.ENOSPC)
        failed = desk.ask("b")
        await turn()
        assert [error_of(call) for call in (failed, parked)] == [ErrorCode.NOT_COORDINATOR] * 2
        assert desk.to_load == [desk.shard]
        assert error_of(desk.ask("read")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.disk.heal()
        await load(world.broker.node, desk.shard, desk.partition)
        assert desk.ledger.values == {"a": 1}
        desk.ask("c")
        await turn()
        assert await stored(desk) == {"a": 1, "c": 1}


async def test_a_request_that_a_failed_write_makes_room_for_sees_nothing_of_it() -> None:
    async with opened() as (world, desk):
        world.disk.fail("append", "*/t-0/*.log", error=errno.ENOSPC)
        failed, seen = desk.ask("b"), []
        failed.deliver_to(lambda _answer: seen.append(desk.ask("read")))
        await turn()
        assert [error_of(call) for call in seen] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


async def test_a_record_that_does_not_fit_its_form_is_refused_like_one_that_is_too_large() -> None:
    async with opened() as (world, desk):
        parked = desk.ask("park")
        assert error_of(desk.ask("unstorable")) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert error_of(parked) is ErrorCode.NOT_COORDINATOR
        await load(world.broker.node, desk.shard, desk.partition)
        before = desk.ask("a")
        desk.shard.decide(lambda _call: [Result([record("x" * 40_000)], on_refused=lambda _: Result([record("b")]))])
        await turn()
        assert error_of(before) is ErrorCode.NONE
        assert await stored(desk) == {"a": 1, "b": 1}


async def test_records_too_large_for_a_batch_are_refused_and_leave_nothing() -> None:
    async with opened() as (world, desk):
        before = desk.ask("a")
        large = desk.ask("large")
        assert error_of(large) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert error_of(before) is ErrorCode.NOT_COORDINATOR, "it was not written, and has to be asked for again"
        assert desk.to_load == [desk.shard]
        await load(world.broker.node, desk.shard, desk.partition)
        assert desk.ledger.values == {}


async def test_an_op_that_can_be_repaired_leaves_the_others_alone() -> None:
    async with opened() as (_, desk):
        before = desk.ask("a")
        assert error_of(desk.ask("large but repaired")) is ErrorCode.UNKNOWN_SERVER_ERROR
        await turn()
        assert error_of(before) is ErrorCode.NONE
        assert desk.to_load == []
        assert await stored(desk) == {"a": 1, "repaired": 1}


async def test_a_turn_may_fill_more_than_one_batch() -> None:
    async with opened({"message.max.bytes": "10000"}) as (_, desk):
        calls = [desk.ask(f"name-{index:3}" + "x" * 200) for index in range(100)]
        await turn()
        assert {error_of(call) for call in calls} == {ErrorCode.NONE}
        piece = desk.partition.log.read(0, 1 << 20, end_offset=100, at_least_one_batch=True)
        assert piece is not None
        sizes = [header.size_bytes for _, header in iterate_headers(piece.read())]
        assert len(sizes) == 3
        assert 8000 < sizes[0] <= 10_000
        assert len(await stored(desk)) == 100


async def test_a_topic_that_asks_for_compression_gets_it() -> None:
    async with opened(compression_type="zstd") as (_, desk):
        desk.ask("a")
        await turn()
        piece = desk.partition.log.read(0, 1 << 20, end_offset=1, at_least_one_batch=True)
        assert piece is not None
        assert read_header(piece.read()).compression is Compression.ZSTD
        assert await stored(desk) == {"a": 1}


async def test_a_lost_leadership_answers_all_who_wait() -> None:
    async with opened(is_replicated=True) as (_, desk):
        parked, written = desk.ask("park"), desk.ask("a")
        await turn()
        unwritten = desk.ask("b")
        desk.shard.close()
        assert [error_of(each) for each in (parked, written, unwritten)] == [ErrorCode.NOT_COORDINATOR] * 3
        assert error_of(desk.ask("a")) is ErrorCode.NOT_COORDINATOR
        assert not desk.partition.produces
        await turn()
        assert desk.partition.log.log_end_offset == 1, "nothing is written any more"


async def test_a_connection_that_breaks_over_its_answer_takes_its_other_calls_back() -> None:
    async with opened(is_replicated=True) as (_, desk):
        first, second, others = desk.ask("a"), desk.ask("b"), desk.ask("c")
        first.deliver_to(lambda _answer: second.abandon())
        await turn()
        desk.shard.close()
        assert [error_of(call) for call in (first, second, others)] == [
            ErrorCode.NOT_COORDINATOR,
            None,
            ErrorCode.NOT_COORDINATOR,
        ]


async def test_a_lost_machine_is_forgotten_step_by_step() -> None:
    async with opened() as (_, desk):
        for name in ("a", "b", "c", "d"):
            desk.ask(name)
        await turn()
        lost = desk.ledger
        desk.shard.close()
        assert len(lost.values) == 3
        assert desk.ledger is not lost
        await turn()
        assert lost.values == {}


async def test_a_leader_that_is_deposed_before_the_end_of_the_turn_writes_nothing() -> None:
    async with opened(is_replicated=True) as (_, desk):
        call = desk.ask("a")
        desk.partition.follow_image(led_by(NodeId(1), epoch=2, replicas=BOTH, isr=BOTH))
        await turn()
        assert error_of(call) is ErrorCode.NOT_COORDINATOR
        assert desk.partition.log.log_end_offset == 0


async def test_a_bug_in_an_op_is_answered_and_the_shard_goes_on() -> None:
    async with opened() as (_, desk):
        parked = desk.ask("park")
        assert error_of(desk.ask("fail")) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert error_of(parked) is None
        desk.ask("release")
        await turn()
        assert error_of(parked) is ErrorCode.NONE


async def test_a_record_that_cannot_be_replayed_never_comes_into_the_log() -> None:
    async with opened() as (_, desk):
        call = desk.ask("poison")
        assert error_of(call) is ErrorCode.NOT_COORDINATOR
        assert desk.to_load == [desk.shard]
        await turn()
        assert desk.partition.log.log_end_offset == 0


async def test_records_of_a_transaction_have_a_batch_of_their_own() -> None:
    async with opened() as (_, desk):
        desk.ask("a")
        desk.ask("b", member_id="of the producer")
        desk.ask("c")
        await turn()
        piece = desk.partition.log.read(0, 1 << 20, end_offset=3, at_least_one_batch=True)
        assert piece is not None
        headers = [header for _, header in iterate_headers(piece.read())]
        assert [(each.is_transactional, each.producer_id) for each in headers] == [(False, -1), (True, 5), (False, -1)]
        assert desk.ledger.pending == {5: {"b": 1}}


async def test_deadlines_are_kept_put_off_and_brought_forward() -> None:
    async with opened() as (world, desk):
        clock, ledger = world.clock, desk.ledger
        ledger.due_ms = clock.monotonic_ms() + 60
        desk.ask("read")
        await turn()
        ledger.due_ms = clock.monotonic_ms() + 20
        desk.ask("read")
        await asyncio.sleep(0.04)
        assert ledger.due_count == 1
        ledger.due_ms = clock.monotonic_ms() + 20
        desk.ask("read")
        await turn()
        ledger.due_ms = clock.monotonic_ms() + 60
        await asyncio.sleep(0.04)
        assert ledger.due_count == 1, "it was put off meanwhile"
        await asyncio.sleep(0.05)
        assert ledger.due_count == 2
        await turn()
        assert (await stored(desk)).keys() == {"due"}


async def test_nothing_is_due_past_the_lease() -> None:
    async with opened() as (world, desk):
        desk.ledger.due_ms = world.clock.monotonic_ms() + 10
        desk.ask("read")
        world.broker.replicas.lease.ends_ms = 0.0
        await asyncio.sleep(0.03)
        assert desk.ledger.due_count == 0
        world.broker.replicas.lease.ends_ms = float("inf")
        async with asyncio.timeout(10):
            while not desk.ledger.due_count:
                await asyncio.sleep(0.01)
        assert desk.ledger.due_count == 1


async def test_long_work_lets_others_have_their_turn() -> None:
    async with opened() as (_, desk):
        with working(steps=20, step=lambda: time.sleep(0.0006)):
            desk.ask("work")
            turns = 0
            while "worked" not in desk.ledger.values:
                assert error_of(desk.ask("read")) is ErrorCode.NONE
                await asyncio.sleep(0)
                turns += 1
                assert turns < 1000
        assert turns >= 8, "20 steps of 0.6 ms in slices of 1 ms"
        await turn()
        assert await stored(desk) == {"worked": 1}


async def test_a_change_of_the_topics_is_told() -> None:
    async with opened() as (world, desk):
        desk.shard.on_image(world.broker.image)
        await turn()
        assert desk.ledger.images == [world.broker.image]
        assert await stored(desk) == {"image": 1}


@pytest.mark.parametrize("name", ["a", "read", "park"])
async def test_a_shard_that_is_not_loaded_refuses(name: str) -> None:
    async with opened() as (world, desk):
        other = Desk(world.broker.node, desk.partition)
        call = make_call(name)
        other.shard.submit(call)
        assert error_of(call) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
