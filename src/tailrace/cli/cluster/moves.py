"""Which replicas move when a broker comes or goes. Pure: looks at the topics as Metadata tells of them, and decides.

A move replaces one broker in a partition's list of replicas and leaves the others and their order alone, so that as
little as possible is copied. It never takes a partition into fewer racks than before. The first replica is the
preferred leader: a new broker gets its share of these too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tailrace.client.metadata import TopicMetadata
from tailrace.model.ids import PartitionIndex, TopicPartition

Replicas = tuple[int, ...]
# Broker id -> its rack, for every broker that may hold replicas.
Racks = Mapping[int, str | None]


def replicas_of(topics: Iterable[TopicMetadata]) -> dict[TopicPartition, Replicas]:
    return {
        TopicPartition(topic.name, PartitionIndex(index)): found.replicas
        for topic in topics
        for index, found in topic.partitions.items()
    }


def decide_moves_to(
    new: int, partitions: Mapping[TopicPartition, Replicas], racks: Racks
) -> dict[TopicPartition, Replicas]:
    """The new replicas of those partitions that give the new broker its share."""
    held = _held_by(partitions, racks)
    counts = {broker: len(found) for broker, found in held.items()}
    leads = dict.fromkeys(racks, 0)
    for replicas in partitions.values():
        if replicas and replicas[0] in leads:
            leads[replicas[0]] += 1
    share = sum(counts.values()) // len(racks)
    lead_share = sum(leads.values()) // len(racks)
    moves: dict[TopicPartition, Replicas] = {}
    while counts[new] < share:
        # The fullest gives first; of equals the one with the smallest id, so that the same cluster gets the same plan.
        donors = sorted(
            (broker for broker in racks if broker != new and held[broker]), key=lambda each: (-counts[each], each)
        )
        if not donors or counts[donors[0]] <= share:
            break
        donor = donors[0]
        partition = held[donor].pop()
        replicas = moves.get(partition, partitions[partition])
        is_lead = replicas[0] == donor
        if partition in moves or new in replicas or (is_lead and leads[new] >= lead_share):
            continue
        moved = tuple(new if replica == donor else replica for replica in replicas)
        if _rack_count(moved, racks) < _rack_count(replicas, racks):
            continue
        moves[partition] = moved
        counts[donor] -= 1
        counts[new] += 1
        if is_lead:
            leads[donor] -= 1
            leads[new] += 1
    return moves


def decide_moves_off(
    leaving: int, partitions: Mapping[TopicPartition, Replicas], racks: Racks
) -> tuple[dict[TopicPartition, Replicas], list[TopicPartition]]:
    """New replicas for all that the broker holds, and the partitions for which no other broker is left. `racks` is of
    the brokers that stay."""
    counts = {broker: len(found) for broker, found in _held_by(partitions, racks).items()}
    moves: dict[TopicPartition, Replicas] = {}
    stuck = []
    for partition, replicas in sorted(partitions.items()):
        if leaving not in replicas:
            continue
        candidates = [broker for broker in racks if broker not in replicas and broker != leaving]
        if not candidates:
            stuck.append(partition)
            continue
        chosen = min(
            candidates, key=lambda each: (-_rack_count(_with(replicas, leaving, each), racks), counts[each], each)
        )
        moves[partition] = _with(replicas, leaving, chosen)
        counts[chosen] += 1
    return moves, stuck


def _held_by(partitions: Mapping[TopicPartition, Replicas], racks: Racks) -> dict[int, list[TopicPartition]]:
    """In such an order that taking a share from the end takes about that share of every topic, large or small."""
    held: dict[int, list[TopicPartition]] = {broker: [] for broker in racks}
    sizes = Counter(partition.topic for partition in partitions)
    order = sorted(partitions, key=lambda each: ((each.partition + 0.5) / sizes[each.topic], each.topic), reverse=True)
    for partition in order:
        for broker in partitions[partition]:
            if broker in held:
                held[broker].append(partition)
    return held


def _with(replicas: Replicas, leaving: int, chosen: int) -> Replicas:
    return tuple(chosen if replica == leaving else replica for replica in replicas)


def _rack_count(replicas: Sequence[int], racks: Racks) -> int:
    return len({racks.get(replica) for replica in replicas})
