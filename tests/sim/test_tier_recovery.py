"""Clusters that are lost with their disks, again and again, in the middle of anything, with faults of the bucket; they
come back from it by recoveries that are killed, too. What must hold:

- what came back is, record for record, what was acknowledged, from the first offset on;
- nothing is missing that a manifest in the bucket has told of, with a listing that is not late;
- no committed offset lies beyond the end, and none is older than the last export in the bucket;
- leader epochs grow, and the bucket is the new cluster's;
- what is written then goes behind it, and a producer that sends again what came back writes nothing twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

import pytest

from tailrace.broker.tier.recovery import folder
from tailrace.model.ports import StoreError
from tailrace.sim.loop import DeadError
from tailrace.sim.objects import StoreFaults
from tailrace.tier.format.marker import Claim
from tailrace.tier.metadata.manifest import read_manifest
from tailrace.tier.recovery import plan as plans
from tests.unit.broker.tier import recovered_world
from tests.unit.broker.tier.recovered_world import RECOVERED, commit, committed, find_coordinator, lose_all, recover
from tests.unit.broker.tier.tiered_world import (
    EARLIEST,
    LATEST,
    SMALL,
    TieredWorld,
    list_offset,
    read_all,
    running_tiered,
)
from tests.unit.broker.world import Peer, batch, create_topic, produce, produced
from tests.unit.simulated import simulated

SETTINGS = {name.replace(".", "_"): value for name, value in RECOVERED.items()}
PRODUCER = 11
LIVES = 3
COMMIT_LAG_S = 1.5  # Longer than the interval of exports, and a look at them.


class Broken(AssertionError):
    pass


class Story:
    """One topic, one idempotent producer, one group."""

    def __init__(self, world: TieredWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.records: list[bytes] = []  # By offset: what was acknowledged, and is not known to be lost.
        self.committed = 0
        self.exported = 0  # What was committed long enough ago to be in an export.
        self.sequence = 0

    async def live(self, peer: Peer) -> None:
        for _ in range(self.random.randrange(30, 90)):
            await self.send(peer, b"%08d" % self.random.randrange(10**8) + bytes(self.random.randrange(200, 600)))
            if self.random.random() < 0.1:
                self.committed = self.random.randrange(self.committed, len(self.records) + 1)
                await commit(peer, "g", self.committed)
            if self.random.random() < 0.05:
                await asyncio.sleep(self.random.uniform(0, 1.5))

    async def send(self, peer: Peer, value: bytes) -> None:
        records = batch(value, producer_id=PRODUCER, producer_epoch=0, base_sequence=self.sequence)
        answer = produced(await peer.request(produce("t", records, acks=-1), 9))
        if answer.error_code or answer.base_offset != len(self.records):
            raise Broken(f"a record got {answer}, not offset {len(self.records)}")
        self.records.append(value)
        self.sequence += 1

    def disturb(self) -> None:
        chance = self.random
        self.world.bucket.faults = StoreFaults(
            delay_ms=(0, chance.choice((5, 50, 200))),
            error_share=chance.choice((0.0, 0.2)),
            lie_share=chance.choice((0.0, 0.2)),
            late_share=chance.choice((0.0, 0.2)),
            late_effect_ms=2_000,
            short_share=chance.choice((0.0, 0.2)),
        )

    async def lose_and_recover(self) -> None:
        if self.random.random() < 0.5:
            await asyncio.sleep(COMMIT_LAG_S + 2)
            self.exported = self.committed if not self.world.bucket.faults.error_share else self.exported
        await self.world.wait(lambda: self.promised() > 0, "a manifest tells of something")
        epoch = int(self.world.partition(1).leader_epoch)
        await lose_all(self.world)
        promised = self.promised()
        for _ in range(50):
            disk = self.world.nodes[1].disk
            if self.random.random() < 0.6:
                disk.die_after(self.random.randrange(0, 250), torn_bytes=3, on_death=lambda: None)
            try:
                (partition,) = (await recover(self.world)).partitions
                break
            except (DeadError, StoreError):
                continue
            except plans.RecoveryError as error:
                if "another recovery" in str(error):
                    continue  # The put of one that was killed before has come late.
                if "node's data already" not in str(error):
                    raise
                # It was killed once all was moved.
                assert self.world.recovered is not None
                (partition,) = self.world.recovered.partitions
                break
            finally:
                disk.crash()
        else:
            raise Broken("it cannot be recovered")
        end = partition.end_offset
        if end < promised:
            raise Broken(f"a manifest has told of offset {promised - 1}, the log ends at {end}")
        if partition.leader_epoch <= epoch:
            raise Broken(f"leader epoch {epoch} comes back, or an older one: {partition.leader_epoch}")
        del self.records[end:]

    def promised(self) -> int:
        """Up to where the newest manifest of the newest generation has all."""
        manifests = [
            read_manifest(name.removeprefix("prefix/"), stored.data)
            for name, stored in self.world.bucket.objects.items()
            if name.endswith(".manifest")
        ]
        newest = max(manifests, key=lambda each: (each.written_ms, each.version), default=None)
        return 0 if newest is None else newest.coverage().end_from(newest.log_start_offset)

    async def check(self, peer: Peer) -> None:
        end = len(self.records)
        places = [(await list_offset(peer, each)).offset for each in (EARLIEST, LATEST)]
        if places != [0, end]:
            raise Broken(f"the log goes from {places[0]} to {places[1]}, and not from 0 to {end}")
        if await read_all(peer, 0, end) != self.records:
            raise Broken("other records came back")
        found = (await committed(peer, "g")).get(("t", 0), (0, -1, ""))[0]
        if not min(self.exported, end) <= found <= min(self.committed, end):
            raise Broken(f"{found} is committed, of {self.exported} to {self.committed}, and the log ends at {end}")
        self.committed = self.exported = found
        await asyncio.sleep(2)
        broker = self.world.nodes[1].broker
        if broker is None or broker.tier is None or not broker.tier.is_ours:
            raise Broken("the new cluster may not use the bucket")
        if end:
            # The last one again: its answer may have been lost with the cluster.
            records = batch(self.records[-1], producer_id=PRODUCER, producer_epoch=0, base_sequence=end - 1)
            again = produced(await peer.request(produce("t", records, acks=-1), 9))
            if (again.error_code, again.base_offset) != (0, end - 1):
                raise Broken(f"what is there already got {again}")
        self.sequence = end


@simulated
async def tell(seed: int) -> Story:
    async with running_tiered(**SETTINGS) as world:
        story = Story(world, seed)
        peer = await world.connect(1)
        await create_topic(peer, "t", **SMALL)
        await find_coordinator(peer, "g")
        for _ in range(LIVES):
            story.disturb()
            await story.live(peer)
            await story.lose_and_recover()
            world.bucket.faults = StoreFaults()
            await world.start(1)
            peer = await world.connect(1)
            await story.check(peer)
        return story


def tell_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        tell(seed)


@pytest.mark.parametrize("seed", range(3))
def test_everything_comes_back_each_time(seed: int) -> None:
    tell(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_over_many_seeds(seed: int) -> None:
    tell(seed)


def offsets_stay_beyond_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = plans._decide_offsets

    def hasty(offsets, found):
        kept = list(offsets)
        return kept, decide(kept, found)[1]

    monkeypatch.setattr(plans, "_decide_offsets", hasty)


def producers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = folder.begin_after
    monkeypatch.setattr(folder, "begin_after", lambda log, start: begin(log, start._replace(producers=b"")))


def the_generation_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    take_over = recovered_world.take_over

    async def hasty(bucket, recovery):
        await take_over(bucket, recovery)
        return Claim(0, "")

    monkeypatch.setattr(recovered_world, "take_over", hasty)


def epochs_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_EPOCH_JUMP", 0)


def the_beginning_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "format_entries", lambda _: b"0\n0\n")


def the_newest_copy_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plans._whole_pieces
    monkeypatch.setattr(plans, "_whole_pieces", lambda pieces: whole(pieces)[:-1])


BUGS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    offsets_stay_beyond_the_end: "is committed",
    producers_are_forgotten: "what is there already got",
    the_generation_stays: "may not use the bucket",
    epochs_come_back: "comes back, or an older one",
    the_beginning_is_not_stored: "not from 0",
    the_newest_copy_is_left_out: "has told of",
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(Broken, match=BUGS[bug]):
        tell_all(range(6))
