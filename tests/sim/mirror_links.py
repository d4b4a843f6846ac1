"""Links between two clusters that stall, are cut one way or both, and break."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tailrace.sim.cluster import World


async def disturb_links(world: World, sources: Sequence[str], targets: Sequence[str], *, seconds: float) -> None:
    random, network, end = world.random.fork(), world.network, world.loop.now + seconds
    while world.loop.now < end:
        await asyncio.sleep(random.between(0.2, 2))
        pairs = [(a, b) for a in sources for b in targets if random.random() < random.choice((0.3, 1.0))]
        match random.choice(("cut", "cut one way", "slow", "reset")):
            case "reset":
                for stream in list(network.streams):
                    if {stream.host, stream.other.host} in [set(pair) for pair in pairs]:
                        network.reset(stream)
            case "slow":
                for a, b in pairs:
                    network.slow(a, b, latency_ms=random.between(5, 300), bytes_per_ms=random.between(1, 50))
                await asyncio.sleep(random.between(0.2, 2))
                for a, b in pairs:
                    network.slow(a, b)
            case kind:
                cuts = pairs if kind == "cut one way" else [*pairs, *((b, a) for a, b in pairs)]
                for a, b in cuts:
                    network.cut(a, b)
                await asyncio.sleep(random.between(0.2, 3))
                for a, b in cuts:
                    network.mend(a, b)
