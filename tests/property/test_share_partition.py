"""The window of a share-partition beside a model that has a dictionary of single offsets."""

from itertools import pairwise
from random import Random

import pytest

from tailrace.coordinator.share_partition.delivery import Acknowledge, Acknowledged, Limits, RecordState
from tailrace.coordinator.share_partition.window import Changes, Window
from tailrace.coordinator.share_state.batches import StateBatch, overlay
from tailrace.model.errors import KafkaError

LIMITS = Limits(delivery_count_max=4, window_max=60, lock_ms=100)
MEMBERS = ("a", "b", "c")
SEEDS = 60
STEPS = 120


class Model:
    """Offset -> what is known of it; those that are done with stay for ever."""

    def __init__(self) -> None:
        self.state: dict[int, str] = {}
        self.count: dict[int, int] = {}
        self.holder: dict[int, tuple[str, float]] = {}
        self.pending: dict[int, tuple[str, tuple[str, float]]] = {}

    def acquired(self, member: str, first: int, last: int, count: int, due_ms: float) -> None:
        for offset in range(first, last + 1):
            assert self.state.get(offset, "free") == "free", f"{offset} was given out while it was not free"
            self.state[offset] = "held"
            self.count[offset] = self.count.get(offset, 0) + 1
            assert self.count[offset] == count <= LIMITS.delivery_count_max
            self.holder[offset] = member, due_ms

    def may_acknowledge(self, member: str, first: int, last: int, start: int) -> bool:
        return all(
            self.state.get(offset) == "held" and self.holder[offset][0] == member
            for offset in range(max(first, start), last + 1)
        )

    def begin(self, offset: int, state: str) -> None:
        if state == "free" and self.count[offset] >= LIMITS.delivery_count_max:
            state = "done"
        self.pending[offset] = state, self.holder.pop(offset)
        self.state[offset] = "pending"

    def end(self, offsets: list[int], *, is_stored: bool) -> None:
        for offset in offsets:
            state, holder = self.pending.pop(offset)
            self.state[offset] = state if is_stored else "held"
            if not is_stored:
                self.holder[offset] = holder


class Run:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.model = Model()
        self.window = Window(0)
        self.now_ms = 0.0
        self.log: list[tuple[int, int]] = []
        self.end = 0
        self.writes: list[tuple[Changes, list[int]]] = []
        self.stored: list[StateBatch] = []

    def step(self) -> None:
        self.random.choice((self.produce, self.acquire, self.acquire, self.acknowledge, self.acknowledge, self.expire,
                            self.leave, self.finish, self.finish, self.wait))()  # fmt: skip
        self.check()

    def produce(self) -> None:
        size = self.random.randint(1, 12)
        self.log.append((self.end, self.end + size - 1))
        self.end += size

    def acquire(self) -> None:
        offset = self.window.next_offset()
        found = [batch for batch in self.log if batch[1] >= offset][: self.random.randint(1, 4)]
        if not found or not self.window.may_acquire(LIMITS):
            return
        member, max_records = self.random.choice(MEMBERS), self.random.randint(1, 30)
        is_strict = self.random.random() < 0.5
        acquired = self.window.acquire(
            member,
            found,
            max_records=max_records,
            batch_size=self.random.randint(1, 20),
            is_strict=is_strict,
            limits=LIMITS,
            now_ms=self.now_ms,
        )
        assert acquired, "there was something to be had"
        for first, last, count in acquired:
            self.model.acquired(member, first, last, count, self.now_ms + LIMITS.lock_ms)
        if is_strict:
            assert sum(last - first + 1 for first, last, _ in acquired) <= max_records

    def acknowledge(self) -> None:
        member = self.random.choice(MEMBERS)
        first = self.random.randint(max(0, self.window.start_offset - 3), max(1, self.window.end_offset))
        last = first + self.random.randint(0, 8)
        kinds = [self.random.choice((0, 1, 1, 2, 3)) for _ in range(first, last + 1)]
        types = tuple(kinds) if self.random.random() < 0.5 else (kinds[0],)
        try:
            changes = self.window.acknowledge(
                member, [Acknowledged(first, last, types)], limits=LIMITS, now_ms=self.now_ms
            )
        except KafkaError:
            is_within = last < self.window.end_offset
            assert not (is_within and self.model.may_acknowledge(member, first, last, self.window.start_offset))
            return
        start = self.window.start_offset
        assert last < start or self.model.may_acknowledge(member, first, last, start)
        offsets = list(range(max(first, start), last + 1))
        for offset in offsets:
            kind = types[offset - first] if len(types) > 1 else types[0]
            self.model.begin(offset, "free" if kind == Acknowledge.RELEASE else "done")
        self.begin(changes, offsets)

    def begin(self, changes: Changes, offsets: list[int]) -> None:
        assert sorted(offset for each in changes for offset in range(each.first, each.last + 1)) == offsets
        if changes:
            self.writes.append((changes, offsets))

    def expire(self) -> None:
        due = [offset for offset, (_, due_ms) in self.model.holder.items() if due_ms <= self.now_ms]
        for offset in due:
            self.model.begin(offset, "free")
        self.begin(self.window.expire(self.now_ms, LIMITS), sorted(due))

    def leave(self) -> None:
        member = self.random.choice(MEMBERS)
        held = sorted(offset for offset, (holder, _) in self.model.holder.items() if holder == member)
        for offset in held:
            self.model.begin(offset, "free")
        self.begin(self.window.release(member, limits=LIMITS, now_ms=self.now_ms), held)

    def finish(self) -> None:
        if not self.writes:
            return
        changes, offsets = self.writes.pop(0)
        is_stored = self.random.random() < 0.8
        if is_stored:
            told = [StateBatch(each.first, each.last, each.state, each.count) for each in changes]
            self.window.commit(changes)
            self.stored = overlay(self.stored, told, start_offset=self.window.start_offset)
        else:
            self.window.undo(changes)
        self.model.end(offsets, is_stored=is_stored)

    def wait(self) -> None:
        self.now_ms += self.random.randint(1, 60)

    def check(self) -> None:
        window, model = self.window, self.model
        position = window.start_offset
        done = 0
        for each in window:
            assert each.first <= position <= each.last, "no hole, and no offset twice"
            for offset in range(position, each.last + 1):
                state = model.state.get(offset, "free")
                expected = {"pending": each.before is not None, "free": each.is_free, "done": each.is_done}
                assert expected.get(state, each.state is RecordState.ACQUIRED), (offset, state, each)
                done += each.is_done
            position = each.last + 1
        assert position == window.end_offset
        assert done == window.done_count
        assert all(model.state[offset] == "done" for offset in range(window.start_offset))
        free = [offset for offset in range(window.start_offset, self.end) if model.state.get(offset, "free") == "free"]
        assert window.next_offset() == min(free, default=self.end)


@pytest.mark.parametrize("seed", range(0, SEEDS, 20))
def test_a_window_does_what_the_model_does(seed: int) -> None:
    for number in range(seed, seed + 20):
        run = Run(number)
        for _ in range(STEPS):
            run.step()
        # Whoever leads next has what was stored, and so nothing that is done with comes back.
        successor = Window(run.window.start_offset, run.stored)
        for each in successor:
            if each.is_done:
                for offset in range(each.first, each.last + 1):
                    assert run.model.state[offset] in {"done", "pending"}
        while run.writes:
            run.finish()
        run.check()


@pytest.mark.parametrize("seed", range(0, SEEDS, 20))
def test_of_a_key_the_first_record_that_is_not_done_with_goes_out(seed: int) -> None:
    for number in range(seed, seed + 20):
        run = OrderedRun(number)
        for _ in range(STEPS):
            run.step()


class OrderedRun:
    """Keys are known up to an offset; some records have none."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.window = Window(0)
        self.keys: dict[int, int] = {}
        self.held: dict[int, str] = {}
        self.done: set[int] = set()
        self.end = 0

    def step(self) -> None:
        self.random.choice((self.extend, self.acquire, self.acquire, self.acknowledge, self.acknowledge))()

    def extend(self) -> None:
        end = self.end + self.random.randint(1, 8)
        offsets = [each for each in range(self.end, end) if self.random.random() < 0.8]
        self.done |= set(range(self.end, end)) - set(offsets)
        self.keys |= {each: self.random.randint(0, 3) for each in offsets if self.random.random() < 0.9}
        self.window.extend(self.end, offsets, end)
        self.end = end

    def acquire(self) -> None:
        member, count = self.random.choice(MEMBERS), self.random.randint(1, 5)
        end = self.random.randint(self.window.start_offset, self.end)
        first = self.window.first_in_order(self.keys, end)
        expected = [each for each in range(end) if self.may_go(each)]
        assert first == min(expected, default=None)
        acquired = self.window.acquire_in_order(
            member, self.keys, end, max_records=count, limits=LIMITS._replace(delivery_count_max=99), now_ms=0
        )
        got = [offset for first, last, _ in acquired for offset in range(first, last + 1)]
        assert got == expected[:count]
        self.held |= dict.fromkeys(got, member)

    def may_go(self, offset: int) -> bool:
        if offset in self.done or offset in self.held:
            return False
        before = [each for each in range(offset) if each not in self.done]
        return offset not in self.keys or all(self.keys.get(each) != self.keys[offset] for each in before)

    def acknowledge(self) -> None:
        for offset in self.random.sample(sorted(self.held), min(len(self.held), 2)):
            kind = self.random.choice((Acknowledge.ACCEPT, Acknowledge.RELEASE))
            said = [Acknowledged(offset, offset, (kind,))]
            changes = self.window.acknowledge(self.held.pop(offset), said, limits=LIMITS, now_ms=0)
            self.window.commit(changes)
            gone = kind is Acknowledge.ACCEPT or changes[0].is_done
            self.done |= {offset} if gone else set()


def test_ranges_laid_over_each_other_are_those_of_single_offsets() -> None:
    for seed in range(300):
        random = Random(seed)
        batches: list[StateBatch] = []
        single: dict[int, tuple[int, int]] = {}
        start = 0
        for _ in range(random.randint(1, 25)):
            first = random.randint(0, 40)
            batch = StateBatch(first, first + random.randint(0, 15), random.choice((0, 2, 4)), random.randint(1, 2))
            start = max(start, random.randint(0, 10))
            batches = overlay(batches, [batch], start_offset=start)
            single |= dict.fromkeys(range(batch.first_offset, batch.last_offset + 1), batch[2:])
            single = {offset: fate for offset, fate in single.items() if offset >= start}
        told = {offset: each[2:] for each in batches for offset in range(each.first_offset, each.last_offset + 1)}
        assert told == single
        for one, other in pairwise(batches):
            assert one.last_offset < other.first_offset
            assert one.last_offset + 1 < other.first_offset or one[2:] != other[2:]
