"""What happens in one run of two clusters (`mirror_world`)."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.sim.random import SimRandom

CALM = ("slow links",)
STORMY = ("kill", "kill leader", "kill leader", "restart", "pause", "isolate", "cut", "reset", "slow node", "kill all")


@dataclass(frozen=True)
class MirrorPlan:
    faults: tuple[str, ...] = STORMY  # Of both clusters,
    target_faults: tuple[str, ...] = ()  # unless those of the mirror are others.
    seconds: float = 12.0
    ends_by: str = "failover"
    bytes_per_second: int = 0
    stops_producers: bool = True  # Before a promote.
    reverses: bool = False
    quiet_ms: int = 1000

    @classmethod
    def of(cls, random: SimRandom) -> MirrorPlan:
        ends_by = random.choice(("failover", "promote"))
        return cls(
            seconds=random.between(6, 14),
            ends_by=ends_by,
            bytes_per_second=random.choice((0, 0, 20_000)),
            stops_producers=random.choice((True, False)),
            reverses=random.choice((True, False)),
        )
