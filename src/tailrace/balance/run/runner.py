"""A plan carried out while the cluster works: a few moves at a time, throttled, watched, and safe to kill anywhere.

    take over   what an earlier run has left: its moves are waited for, its throttles are this run's now
    look, plan  from what the cluster tells; nothing else is remembered, so a run after a crash does what is left
    step        throttle, begin some moves, wait; the next begin as others end
    settle      leaders take their places, throttles go

No move begins while a replica elsewhere lags, or while clients wait longer than they should; the rate falls then, and
rises again. A partition moves only if all its live replicas are in sync, and keeps them until all the new ones are:
so no move takes it below min.insync.replicas. A move to a broker that has died is cancelled. Reassignments of somebody
else are never touched. Of two runs at a time the later one goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tailrace.balance.plan.decide import decide_plan
from tailrace.balance.plan.picture import Goals, Move, Plan, Replicas, Wish
from tailrace.balance.run.look import Disk, Limits, Rates, Sight, look, look_at_disks, look_at_machines, picture_of
from tailrace.balance.run.metrics import Metrics
from tailrace.balance.run.throttles import Throttles, TopicSettings
from tailrace.client.admin import Admin
from tailrace.client.metadata import PartitionMetadata
from tailrace.controller.partitions.throttles import RUN_MAX
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import TopicPartition
from tailrace.model.machines import MachineBrokers

T = TypeVar("T")

# A topic that was created meanwhile may have landed on a broker that is emptied: then it is emptied again.
_ROUNDS_MAX = 10
_LOST_CHECK_MS = 10_000
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Pace(NamedTuple):
    at_once: int = 20  # partitions
    rate: int = 10_000_000  # bytes a second, of each broker and each way
    rate_min: int = 1_000_000  # However slow clients are, it does not fall below.
    patience_ms: int = 30_000  # How long a broker may be away, or a replica lag, before a move is given up.
    poll_ms: int = 500
    wait_ms: int = 3_600_000  # for all of it


class BalanceError(Exception):
    """It cannot be done, or not by this run. The message is for whoever asked."""


class ImpossibleError(BalanceError):
    """A hard goal or a wish cannot be met: waiting does not help."""


class Outcome(NamedTuple):
    moved: int
    copied_bytes: int
    given_up: tuple[str, ...]  # Moves that did not come to their end, and why.
    plan: Plan  # The last one: what is left of it says what was not reached.


class Runner:
    """`tell` is given a line now and then, and `progress` how many moves are done, of how many."""

    def __init__(
        self,
        admin: Admin,
        *,
        goals: Goals,
        pace: Pace,
        limits: Limits,
        tell: Callable[[str], None],
        progress: Callable[[int, int], None] = lambda _done, _total: None,
        metrics: Metrics | None = None,
    ) -> None:
        self._admin = admin
        self._clock = admin.cluster.ports.clock
        self._goals, self._pace, self._limits = goals, pace, limits
        self._tell, self._progress = tell, progress
        self._metrics = metrics
        self._throttles = Throttles(admin, int(self._clock.wall_ms() / 1000) % RUN_MAX)
        self._deadline_ms = self._clock.monotonic_ms() + pace.wait_ms
        self._rate = pace.rate
        self._active: dict[TopicPartition, Move] = {}
        self._given_up: dict[tuple[TopicPartition, Replicas], str] = {}
        self._suspect_since_ms: dict[TopicPartition, float] = {}
        self._settings: dict[str, TopicSettings] = {}
        self._checked_ms = float("-inf")
        self._complaint: str | None = None
        # Which brokers share a machine where their hosts do not tell; asked once.
        self._machines: Sequence[MachineBrokers] | None = None
        self._moved = self._copied_bytes = 0
        self._is_lost = False

    async def plan(self, wish: Wish) -> Plan:
        """What `run` would do; nothing is changed."""
        return await self._decide(await self._ask(lambda: look(self._admin)), wish)

    async def run(self, wish: Wish) -> Outcome:
        """Raises BalanceError, and KafkaError if the cluster does not answer in time."""
        try:
            await self._take_over()
            outcome = await self._rounds(wish)
        except _LostError:
            self._is_lost = True
            raise
        finally:
            # Whoever interrupts it waits for this; a kill -9 leaves the marks.
            await self._let_go()
        return outcome

    async def stop(self, *, cancel: bool) -> int:
        """Ends whatever run is under way, alive or not: it sees that a later one has come. Its moves are waited for, or
        cancelled where that leaves enough replicas in sync. Gives how many there were."""
        await self._take_over()
        count = len(self._active)
        if cancel:
            await self._cancel(list(self._active))
        while self._active:
            await self._settle_moves(await self._sight())
            await self._pause(f"{len(self._active)} moves are still under way")
        await self._let_go()
        return count

    async def _rounds(self, wish: Wish) -> Outcome:
        while self._active:
            await self._settle_moves(await self._sight())
            await self._pause("the moves of an earlier run are still under way")
        for number in range(_ROUNDS_MAX):
            sight = await self._sight()
            plan = await self._decide(sight, wish)
            if plan.problems:
                raise ImpossibleError("; ".join(plan.problems))
            moves = [move for move in plan.moves if (move.partition, move.new) not in self._given_up]
            if not moves or (number and not wish.drained and not self._given_up):
                if not wish.must_only and not wish.added:
                    await self._lead(_displaced(sight))
                return Outcome(self._moved, self._copied_bytes, self._failures(), plan)
            await self._carry_out(moves)
        raise BalanceError("new partitions keep coming: pause whoever creates topics, and run it again")

    async def _decide(self, sight: Sight, wish: Wish) -> Plan:
        if self._machines is None:
            self._machines = await self._ask(lambda: look_at_machines(self._admin, sight.live))
        disks, rates = await self._disks(), await self._measure()
        picture = picture_of(sight, disks, rates=rates, limits=self._limits, machines=self._machines)
        return decide_plan(picture, self._goals, wish)

    def _failures(self) -> tuple[str, ...]:
        return tuple(f"{partition}: {why}" for (partition, _), why in sorted(self._given_up.items()))

    # ---- one round

    async def _carry_out(self, moves: Sequence[Move]) -> None:
        waiting = {move.partition: move for move in moves}
        led = [move.partition for move in moves if move.new[0] != move.old[0]]
        total = len(moves)
        while waiting or self._active:
            sight = await self._sight()
            await self._settle_moves(sight)
            await self._check_strain(sight)
            await self._check_lost(sight)
            if waiting and self._complaint is None:
                await self._begin_some(waiting, sight)
            self._progress(total - len(waiting) - len(self._active), total)
            if waiting or self._active:
                why = f": {self._complaint}" if self._complaint else ""
                await self._pause(f"{len(waiting) + len(self._active)} partitions still to move{why}")
        await self._lead(led)

    async def _begin_some(self, waiting: dict[TopicPartition, Move], sight: Sight) -> None:
        room = self._pace.at_once - len(self._active)
        if room <= 0:
            return
        states = _states(sight)
        chosen: dict[TopicPartition, Move] = {}
        names = sorted({partition.topic for partition in waiting} - self._settings.keys())
        self._settings |= await self._ask(lambda: self._throttles.settings_of(names))
        for partition, move in list(waiting.items()):
            why = self._why_not(move, states.get(partition), sight)
            if why is None:
                self._suspect_since_ms.pop(partition, None)
                chosen[partition] = waiting.pop(partition)
                if len(chosen) == room:
                    break
            elif self._has_too_few(move) or self._is_over_patience(partition):
                self._give_up(waiting.pop(partition), why)
        if chosen:
            await self._begin(chosen, waiting)

    def _why_not(self, move: Move, state: PartitionMetadata | None, sight: Sight) -> str | None:
        """Why a move must not begin now."""
        partition = move.partition
        if state is None:
            return "it was deleted"
        if partition in sight.reassignments:
            return "somebody else moves it"
        if state.replicas != move.old:
            return "its replicas are not what they were"
        settings = self._settings.get(partition.topic)
        if settings is not None and settings.is_foreign and not settings.is_covered:
            return f"somebody else throttles replicas of topic {partition.topic}"
        if settings is not None and self._has_too_few(move):
            return f"{len(move.new)} replicas are fewer than min.insync.replicas, {settings.min_insync}"
        if state.leader_id < 0:
            return "it has no leader"
        lagging = [node for node in state.replicas if node in sight.live and node not in state.isr]
        if lagging:
            return f"its replica on broker {lagging[0]} is not in sync"
        down = [node for node in move.new if node not in sight.live]
        return f"broker {down[0]} is down" if down else None

    def _has_too_few(self, move: Move) -> bool:
        settings = self._settings.get(move.partition.topic)
        return settings is not None and len(move.new) < min(settings.min_insync, len(move.old))

    async def _begin(self, chosen: dict[TopicPartition, Move], waiting: dict[TopicPartition, Move]) -> None:
        self._active |= chosen
        await self._throttle()
        targets = {partition: move.new for partition, move in chosen.items()}
        refused = await self._ask(lambda: self._admin.begin_moves(targets))
        for partition, error in refused.items():
            del self._active[partition]
            if error.code in _GONE:
                continue  # There is nothing to move any more.
            if error.code.retriable and not self._is_over_patience(partition):
                waiting[partition] = chosen[partition]
            else:
                self._give_up(chosen[partition], error.message)

    async def _throttle(self, *, again: bool = False) -> None:
        covered = {topic for topic, settings in self._settings.items() if settings.is_covered}
        moves = {
            partition: (move.old, [node for node in move.new if node not in move.old])
            for partition, move in self._active.items()
            if partition.topic not in covered
        }
        await self._ask(lambda: self._throttles.throttle(moves, self._rate, again=again))

    async def _settle_moves(self, sight: Sight) -> None:
        """Takes out what has come to its end, and cancels what cannot."""
        states = _states(sight)
        hopeless = []
        for partition, move in list(self._active.items()):
            state = states.get(partition)
            if partition in sight.reassignments:
                down = [node for node in move.new if node not in sight.live]
                if not down:
                    self._suspect_since_ms.pop(partition, None)
                elif self._is_over_patience(partition):
                    hopeless.append(partition)
            elif state is None:
                del self._active[partition]  # Its topic was deleted.
            elif {*state.replicas} == {*move.new}:
                del self._active[partition]
                self._suspect_since_ms.pop(partition, None)
                self._moved += 1
                self._copied_bytes += move.size_bytes
            elif self._is_over_patience(partition):
                # Longer than a broker takes to hear of it.
                del self._active[partition]
                self._give_up(move, "it was cancelled")
        await self._cancel(hopeless, states)

    async def _cancel(
        self, partitions: Sequence[TopicPartition], states: Mapping[TopicPartition, PartitionMetadata] | None = None
    ) -> None:
        """Only where those that it had are in sync without those that came: a cancelled move drops the new ones."""
        if not partitions:
            return
        if states is None:
            states = _states(await self._sight())
        names = sorted({partition.topic for partition in partitions})
        self._settings |= await self._ask(lambda: self._throttles.settings_of(names))
        safe = []
        for partition in partitions:
            state, old = states.get(partition), self._active[partition].old
            settings = self._settings.get(partition.topic)
            enough = min(settings.min_insync if settings else 1, len(old))
            if state is not None and len({*state.isr} & {*old}) >= max(1, enough):
                safe.append(partition)
        if safe:
            await self._ask(lambda: self._admin.begin_moves(dict.fromkeys(safe)))

    def _give_up(self, move: Move, why: str) -> None:
        self._given_up[move.partition, move.new] = why
        self._tell(f"the move of {move.partition} is given up: {why}")

    def _is_over_patience(self, partition: TopicPartition) -> bool:
        now_ms = self._clock.monotonic_ms()
        return now_ms - self._suspect_since_ms.setdefault(partition, now_ms) > self._pace.patience_ms

    async def _lead(self, partitions: Sequence[TopicPartition]) -> None:
        """Those that are first in their lists take the lead now; by itself the controller looks every few minutes."""
        if partitions:
            await self._ask(lambda: self._admin.elect_leaders(partitions))

    # ---- what it watches

    async def _check_strain(self, sight: Sight) -> None:
        """A replica that lags, or clients that wait: no new moves, and half the rate; it comes back in steps."""
        was, self._complaint = self._complaint, self._lagging(sight)
        if self._complaint is None and self._metrics is not None:
            self._complaint = await self._metrics.watch()
        pace = self._pace
        if self._complaint is None:
            rate = min(pace.rate, self._rate + max(1, pace.rate // 10))
        else:
            rate = max(min(pace.rate, pace.rate_min), self._rate // 2)
        if self._complaint is not None and was is None:
            self._tell(f"{self._complaint}: no new moves, at most {rate:,} bytes a second")
        if rate != self._rate:
            self._rate = rate
            await self._throttle()

    def _lagging(self, sight: Sight) -> str | None:
        for partition, state in _states(sight).items():
            if partition in self._active or partition in sight.reassignments:
                continue
            for node in state.replicas:
                if node in sight.live and node not in state.isr and node not in state.offline_replicas:
                    return f"{partition} has a replica on broker {node} that is not in sync"
        return None

    # ---- others like it

    async def _take_over(self) -> None:
        sight = await self._sight()
        names = [topic.name for topic in sight.topics]
        marked = await self._ask(lambda: self._throttles.find_marked(names))
        marks = {name: settings.mark for name, settings in marked.items() if settings.mark is not None}
        await self._ask(lambda: self._throttles.prepare(marks))
        for partition, ongoing in sight.reassignments.items():
            pairs = {(int(partition.partition), node) for node in ongoing.adding}
            if partition.topic in marked and pairs and pairs <= marked[partition.topic].followers:
                old = tuple(node for node in ongoing.replicas if node not in ongoing.adding)
                self._active[partition] = Move(partition, old, ongoing.target, 0, "an earlier run began it")
        if marks:
            run = max(mark.run for mark in marks.values())
            self._tell(f"takes over from run {run}: {len(self._active)} of its moves are under way")
            if self._active:
                await self._throttle()
            else:
                await self._ask(self._throttles.remove)

    async def _check_lost(self, sight: Sight) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms < _LOST_CHECK_MS:
            return
        self._checked_ms = now_ms
        names = [topic.name for topic in sight.topics]
        marked = await self._ask(lambda: self._throttles.find_marked(names))
        later = max((settings.mark.run for settings in marked.values() if settings.mark is not None), default=0)
        if later > self._throttles.run:
            raise _LostError(
                f"a later balancer (run {later}) has taken over: this one (run {self._throttles.run}) ends"
            )
        if self._active:
            # What is no longer as it was set is set again.
            await self._throttle(again=True)

    async def _let_go(self) -> None:
        """What moves still would starve clients without its throttle: who comes next takes that away, or our
        controllers do."""
        if self._active and not self._is_lost:
            self._tell(f"{len(self._active)} moves go on, throttled: `tailrace balance stop` waits for them")
        elif not self._is_lost:
            await self._ask(self._throttles.remove)

    # ---- questions

    async def _sight(self) -> Sight:
        return await self._ask(lambda: look(self._admin))

    async def _disks(self) -> Mapping[int, Disk]:
        return await self._ask(self._look_at_disks)

    async def _measure(self) -> Rates:
        return Rates() if self._metrics is None else await self._metrics.measure()

    async def _look_at_disks(self) -> Mapping[int, Disk]:
        live = frozenset(int(node) for node in self._admin.cluster.brokers)
        return await look_at_disks(self._admin, live)

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """A controller that moves, or a broker that is busy or gone, answers later, or another one does."""
        remaining_ms = int(self._deadline_ms - self._clock.monotonic_ms())
        return await self._admin.cluster.with_retries(question, timeout_ms=max(1000, remaining_ms))

    async def _pause(self, situation: str) -> None:
        if self._clock.monotonic_ms() > self._deadline_ms:
            raise BalanceError(f"{situation}; the time for it is over. What moves goes on moving")
        await asyncio.sleep(self._pace.poll_ms / 1000)


class _LostError(BalanceError):
    """Another run has taken over: its throttles are not to be touched."""


def _displaced(sight: Sight) -> list[TopicPartition]:
    """Led by another replica than the first, which could: so it is where the first one was away for a while."""
    return [
        partition
        for partition, state in _states(sight).items()
        if partition not in sight.reassignments
        and 0 <= state.leader_id != state.replicas[0]
        and state.replicas[0] in state.isr
    ]


def _states(sight: Sight) -> dict[TopicPartition, PartitionMetadata]:
    return {
        TopicPartition(topic.name, found.partition): found
        for topic in sight.topics
        for found in topic.partitions.values()
    }
