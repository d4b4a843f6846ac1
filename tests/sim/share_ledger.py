"""What members of share groups were told in a simulation, and whether it fits together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.client.shares.consumer import ACCEPT, REJECT, RELEASE, ShareRecord
from tailrace.verify import Recorder, verify
from tailrace.verify.recorder import Process, Settling
from tests.unit.broker.cluster_world import ClusterWorld

LOCK_MS = 1500
# Clocks of simulated nodes may be slower or faster than time by a percent.
CLOCK_SPEED_MIN = 0.99
LIMIT = 5
GROUP, TOPIC = "workers", "jobs"
KEY_ORDER = {"share.key.order": "true"}
KEYS = 4
PARTITIONS = 2
DEAD_LETTERS = "dlq.jobs"
LETTERS = {"errors.deadletterqueue.topic.name": DEAD_LETTERS}
BACKOFF_MS, BACKOFF_FACTOR = 200, 2
BACKOFF = {"share.retry.backoff.ms": str(BACKOFF_MS), "share.retry.backoff.factor": str(BACKOFF_FACTOR)}


class Ledger:
    """What members were told, and whether it fits together."""

    def __init__(self, world: ClusterWorld, group_settings: Mapping[str, str]) -> None:
        self._world = world
        self._has_key_order = KEY_ORDER.items() <= group_settings.items()
        # Of each partition, by key: what was written, and what somebody has accepted or rejected.
        self.written: dict[tuple[int, bytes], list[int]] = defaultdict(list)
        self.ended: set[tuple[int, int]] = set()
        self.limit = int(group_settings.get("share.delivery.count.limit", LIMIT))
        self.lines: list[str] = []
        self.recorder = Recorder(self.lines.append)
        self.producer = self.recorder.process("producer")
        self._has_letters = LETTERS.items() <= group_settings.items()
        self._has_backoff = BACKOFF.items() <= group_settings.items()
        self.produced: set[tuple[int, int]] = set()
        self.delivered: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.done: dict[tuple[int, int], str] = {}
        # Of these nobody was told whether what was said of them counts.
        self.unknown: set[tuple[int, int]] = set()
        # Of these somebody has said that they are accepted, whether it counts or not.
        self.perhaps_accepted: set[tuple[int, int]] = set()
        self.letters: set[tuple[int, int]] = set()
        self.starts: dict[int, int] = defaultdict(int)
        # Who gave a record back, when, by which leader, and after how many deliveries.
        self._released: dict[tuple[int, int], tuple[float, int, int]] = {}
        # Who was given a record last, since when at the latest, and by which leader.
        self._held: dict[tuple[int, int], tuple[str, float, int]] = {}

    def now_ms(self) -> float:
        return self._world.loop.now * 1000

    def leader_epoch(self, partition: int) -> int:
        """The newest that anybody knows."""
        replicas = (broker.replicas.partitions.get((TOPIC, partition)) for broker in self._world.running)
        return max((each.leader_epoch for each in replicas if each is not None), default=-1)

    def note_delivered(self, member: str, asked_ms: float, asked_epoch: int, record: ShareRecord) -> None:
        place = record.partition.partition, record.record.offset
        assert place not in self.done, f"{place} is done with ({self.done[place]}) and went to {member}"
        assert 1 <= record.delivery_count <= self.limit, f"{place} was delivered {record.delivery_count} times"
        held = self._held.get(place)
        epoch = self.leader_epoch(place[0])
        if held is not None and held[0] != member and held[2] == epoch == asked_epoch:
            assert self.now_ms() >= held[1] + LOCK_MS * CLOCK_SPEED_MIN, f"{place} is {held[0]}'s and went to {member}"
        released_ms, released_epoch, count = self._released.pop(place, (0.0, -1, 0))
        if self._has_backoff and released_epoch == epoch:
            due_ms = released_ms + BACKOFF_MS * BACKOFF_FACTOR ** (count - 1) * CLOCK_SPEED_MIN
            assert self.now_ms() >= due_ms, f"{place} came back {due_ms - self.now_ms()} ms too soon"
        if self._has_key_order and record.record.key is not None:
            self._check_order(place, record.record.key)
        self._held[place] = member, asked_ms, epoch
        self.delivered[place].append(record.delivery_count)

    def _check_order(self, place: tuple[int, int], key: bytes) -> None:
        for offset in self.written[place[0], key]:
            earlier = place[0], offset
            if offset < place[1] and max(self.delivered.get(earlier, [0])) < self.limit:
                assert earlier in self.ended, f"{place} was delivered before {earlier} of the same key was done with"

    def note_said(self, record: ShareRecord) -> None:
        """It may be for others from now on."""
        self._held.pop((record.partition.partition, record.record.offset), None)

    def note_gone(self, member: str) -> None:
        self._held = {place: held for place, held in self._held.items() if held[0] != member}

    def note_confirmed(
        self, member: str, said: dict[tuple[int, int], int], said_ms: float, said_epochs: Sequence[int]
    ) -> None:
        self.look()
        for place, kind in said.items():
            if kind == RELEASE and place not in self._held:
                self._released[place] = said_ms, said_epochs[place[0]], self.delivered[place][-1]
            # What is rejected is delivered again if its leader dies before there is a letter.
            if kind == REJECT and self._has_letters:
                continue
            # As in Kafka, what is said of records before the start is taken, and counts for nothing.
            if kind != RELEASE and (place not in self.done or place[1] >= self._start(place[0])):
                assert place not in self.done, f"{place} was done with twice, by {member} and {self.done[place]}"
                self.done[place] = member

    def begin_settling(self, process: Process, said: dict[tuple[int, int], int]) -> Settling:
        # What is rejected is delivered again if its leader dies before there is a letter.
        words = {ACCEPT: "accept", REJECT: "release" if self._has_letters else "reject", RELEASE: "release"}
        return process.settle(GROUP, [(f"{TOPIC}-{at}", offset, words[kind]) for (at, offset), kind in said.items()])

    def check_history(self) -> None:
        self.producer.emptied(GROUP)
        report = verify(self.lines)
        assert report.figures.deliveries == sum(map(len, self.delivered.values()))
        assert report.is_clean, report.anomalies[:3]

    def _start(self, partition: int) -> int:
        windows = [
            each.window.start_offset
            for broker in self._world.running
            for (_, place), each in broker.services.shares.partitions.items()
            if place.partition == partition
        ]
        return max(windows, default=self.starts[partition])

    def look(self) -> None:
        """At the state as share coordinators have it."""
        for broker in self._world.running:
            running = broker.services.coordination.running_shares
            for shard in () if running is None else running.shards.values():
                if not shard.is_active or shard.has_unwritten:
                    continue
                machine: Any = shard.machine
                for place, state in machine.states.items():
                    if shard.partition.high_watermark >= shard.partition.log.log_end_offset and state.start_offset >= 0:
                        known = self.starts[place.partition]
                        assert state.start_offset >= known, f"the start of {place.partition} fell from {known}"
                        self.starts[place.partition] = state.start_offset
