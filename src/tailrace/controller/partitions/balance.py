"""The balance of leaders (auto.leader.rebalance.enable): preferred leaders get their partitions back by themselves.

Every leader.imbalance.check.interval.seconds, one broker at a time so that a large cluster does not hold the
controller: what others lead of the partitions that a broker is preferred for is given back, as Kafka does since it has
no leader.imbalance.per.broker.percentage any more. On the way, partitions without a leader whose topic has come to
allow unclean elections get one.
"""

from tailrace.controller.image import NO_LEADER
from tailrace.controller.partitions.change import Election, PartitionChanges
from tailrace.controller.view import View
from tailrace.wire.schema import Message

# As in Kafka. What is left comes with the next decision, before which other work may go.
ELECTIONS_MAX = 1000


def decide_balance(view: View, node_id: int) -> list[Message]:
    """The elections that bring a broker its preferred partitions back, and its leaderless ones a leader."""
    if not view.image.is_active(node_id):
        return []
    misplaced, leaderless = [], []
    for topic, index, partition in view.image.partitions_of(node_id):
        if partition.leader == NO_LEADER:
            leaderless.append((topic, index))
        elif partition.replicas[0] == node_id != partition.leader and node_id in partition.isr:
            misplaced.append((topic, index))
    changes = PartitionChanges(view)
    records: list[Message] = [*changes.decide_all(leaderless)]
    if view.config.auto_leader_rebalance_enable:
        given_back = (changes.decide(topic, index, election=Election.PREFERRED) for topic, index in misplaced)
        records += [record for record in given_back if record is not None]
    return records[:ELECTIONS_MAX]
