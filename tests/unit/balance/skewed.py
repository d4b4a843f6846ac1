"""Clusters out of balance, as a seed makes them: sizes, rates, racks and placements that nobody would choose."""

from __future__ import annotations

from tailrace.balance.plan.picture import BrokerState, PartitionState, Picture, Resource
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.random import SimRandom


def skewed(seed: int, *, brokers: int = 0, partitions: int = 0, topics: int = 0, on_each_machine: int = 1) -> Picture:
    """With several brokers on each machine these are in one rack."""
    random = SimRandom(seed)
    brokers = brokers or 4 + random.randrange(9)
    partitions = partitions or brokers * (25 + random.randrange(40))
    topics = topics or 4 + random.randrange(12)
    racks = random.choice((1, 2, 3, 3))
    factor = min(3, brokers)
    # Some brokers were there first, and have most of it.
    favourites = [1 + each for each in range(brokers) if random.random() < 0.4] or [1]
    states = []
    for number in range(partitions):
        held: list[int] = []
        while len(held) < factor:
            chosen = random.choice(favourites) if random.random() < 0.5 else 1 + random.randrange(brokers)
            held += [chosen] if chosen not in held else []
        scale = (0.2 + random.random()) ** 3
        states.append(
            PartitionState(
                TopicPartition(f"topic-{number % topics}", PartitionIndex(number // topics)),
                tuple(held),
                size_bytes=scale * 1e9,
                in_rate=scale * 1e5 * (0.5 + random.random()),
                out_rate=scale * 3e5 * random.random(),
                leader_loop=scale * 0.001,
                follower_loop=scale * 0.0003,
            )
        )
    total = sum(state.size_bytes * factor for state in states)
    # Enough for a broker of the smallest rack, which has a replica of everything if there are three.
    smallest = brokers // on_each_machine // racks * on_each_machine
    capacity = {Resource.DISK: max(total / brokers, total / 3 / smallest if racks == 3 else 0) / 0.6}
    nodes = [
        BrokerState(
            1 + each,
            f"rack-{each // on_each_machine % racks}" if racks > 1 else None,
            capacity=capacity,
            machine=f"machine-{each // on_each_machine}",
        )
        for each in range(brokers)
    ]
    return Picture(nodes, states)
