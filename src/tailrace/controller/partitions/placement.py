"""Where the replicas of new partitions go.

Racks first: the replicas of a partition lie in as many racks as there are, and then on as many machines, for several
brokers may share one. Then evenly: each active broker leads the same number of partitions of a topic, and the followers
of a leader differ from partition to partition, so that the load of a dead broker spreads over all others and not over
its neighbour alone. Brokers that are fenced get replicas only if there are too few others, and never lead.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from tailrace.controller.image import BrokerImage
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.model.machines import MachineBrokers, machine_of


class _Place(NamedTuple):
    node_id: NodeId
    rack: str
    machine: str


def decide_placement(
    brokers: Sequence[BrokerImage],
    *,
    partitions: range,
    replication_factor: int,
    start_index: int,
    machines: Sequence[MachineBrokers] = (),
) -> list[tuple[NodeId, ...]]:
    """The replicas of each partition, leader first. Leaders go round the active brokers from `start_index` on.
    `machines` are named by hand, others found by the brokers' hosts. Raises KafkaError INVALID_REPLICATION_FACTOR."""
    usable = [broker for broker in brokers if not broker.in_controlled_shutdown]
    active = _order([broker for broker in usable if not broker.fenced], machines)
    fenced = _order([broker for broker in usable if broker.fenced], machines)
    if replication_factor < 1:
        raise _impossible(replication_factor, "The replication factor must be larger than 0.")
    if not active:
        raise _impossible(replication_factor, "All brokers are currently fenced.")
    if replication_factor > len(usable):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered."
        )
        raise _impossible(replication_factor, reason)
    followers = min(replication_factor, len(active)) - 1
    spare = tuple(place.node_id for place in fenced[: replication_factor - 1 - followers])
    racks, of_machines = len({place.rack for place in active}), len({place.machine for place in active})
    return [
        (*_replicas(active, start_index + partition, followers, racks, of_machines), *spare) for partition in partitions
    ]


def _order(brokers: Iterable[BrokerImage], machines: Sequence[MachineBrokers]) -> list[_Place]:
    """One of each rack, then the second of each, and so on; so with the machines of a rack: neighbours are apart."""
    places = [
        _Place(
            broker.node_id,
            broker.rack or "",
            machine_of(broker.node_id, (endpoint.host for endpoint in broker.endpoints), machines),
        )
        for broker in sorted(brokers, key=lambda broker: (broker.rack or "", broker.node_id))
    ]
    racks = _in_groups(places, lambda place: place.rack)
    return _take_turns([_take_turns(_in_groups(rack, lambda place: place.machine)) for rack in racks])


def _in_groups(places: Iterable[_Place], key: Callable[[_Place], str]) -> list[list[_Place]]:
    groups: dict[str, list[_Place]] = {}
    for place in places:
        groups.setdefault(key(place), []).append(place)
    return list(groups.values())


def _take_turns(groups: Iterable[Sequence[_Place]]) -> list[_Place]:
    return [place for row in zip_longest(*groups) for place in row if place is not None]


def _replicas(
    places: Sequence[_Place], index: int, followers: int, rack_count: int, machine_count: int
) -> tuple[NodeId, ...]:
    count = len(places)
    leader, shift = index % count, index // count
    chosen = [places[leader]]
    racks, machines = {places[leader].rack}, {places[leader].machine}
    left: Iterable[_Place] = (places[(leader + 1 + (shift + step) % (count - 1)) % count] for step in range(count - 1))
    # A look through all for those that are apart in both, one for those on other machines, and one for anybody.
    for is_by_rack, is_by_machine in ((True, True), (False, True), (False, False)):
        passed = []
        for place in left:
            if len(chosen) > followers:
                break
            is_near = is_by_rack and place.rack in racks and len(racks) < rack_count
            if is_near or (is_by_machine and place.machine in machines and len(machines) < machine_count):
                passed.append(place)
            else:
                chosen.append(place)
                racks.add(place.rack)
                machines.add(place.machine)
        left = passed
    return tuple(place.node_id for place in chosen)


def _impossible(replication_factor: int, reason: str) -> KafkaError:
    message = f"Unable to replicate the partition {replication_factor} time(s): {reason}"
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
