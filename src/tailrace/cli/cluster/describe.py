"""`tailrace cluster describe`: brokers, the metadata quorum, and the partitions that someone should look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tailrace.cli.output import count_text, print_json, print_rows
from tailrace.client.admin import Admin, BrokerEntry, QuorumDescription
from tailrace.client.metadata import Cluster, PartitionMetadata, TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid, uuid_text

# In the tables; --json has all of them.
_SICK_SHOWN_MAX = 20
# A broker waits for a controller as long as we wait for the broker: who gives up first is chance.
_WITHOUT_A_LEADER = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class _Partition(NamedTuple):
    topic: str
    found: PartitionMetadata

    @property
    def is_offline(self) -> bool:
        return self.found.leader_id < 0

    @property
    def is_under_replicated(self) -> bool:
        return len(self.found.isr) < len(self.found.replicas)


async def describe(cluster: Cluster, *, as_json: bool) -> int:
    admin = Admin(cluster)
    brokers = await admin.brokers()
    quorum, problem = await _describe_quorum(admin)
    partitions = _partitions_of(await admin.topics())
    awaited = await _find_awaited(admin, partitions)
    if as_json:
        print_json(_facts(cluster.cluster_id, brokers, quorum, partitions, problem=problem, awaited=awaited))
        return 1 if problem else 0
    _print_brokers(cluster.cluster_id, brokers, partitions)
    if quorum is not None:
        _print_quorum(quorum)
    else:
        print(f"metadata quorum: {problem}")
    _print_partitions(partitions, awaited)
    return 1 if problem else 0


async def _describe_quorum(admin: Admin) -> tuple[QuorumDescription | None, str | None]:
    """Or why nobody describes it: the brokers know the rest, and whoever asks needs it then most."""
    try:
        return await admin.describe_quorum(), None
    except KafkaError as error:
        if error.code not in _WITHOUT_A_LEADER:
            raise
        return None, (
            f"no leader ({error.message}). It takes a majority of the voters; one that has lost records of its log "
            "does not vote until it has caught up with a leader, and says so in its own log"
        )


async def _find_awaited(admin: Admin, partitions: Sequence[_Partition]) -> dict[str, tuple[int, ...]]:
    """For each partition without a leader, the brokers that have what was confirmed: one of them has to come back."""
    topics = sorted({each.topic for each in partitions if each.is_offline})
    return {f"{topic}-{index}": nodes for (topic, index), nodes in (await admin.eligible_leaders(topics)).items()}


def _partitions_of(topics: Sequence[TopicMetadata]) -> list[_Partition]:
    return [_Partition(topic.name, found) for topic in topics for found in topic.partitions.values()]


def _counts(node_id: int, partitions: Sequence[_Partition]) -> tuple[int, int, int]:
    """Leaderships, replicas, and those of them that are in sync."""
    return (
        sum(each.found.leader_id == node_id for each in partitions),
        sum(node_id in each.found.replicas for each in partitions),
        sum(node_id in each.found.isr for each in partitions),
    )


def _print_brokers(cluster_id: str | None, brokers: Sequence[BrokerEntry], partitions: Sequence[_Partition]) -> None:
    print_rows(
        ("broker", "address", "rack", "state", "leads", "replicas", "in sync"),
        [
            (
                broker.node_id,
                f"{broker.host}:{broker.port}",
                broker.rack,
                "fenced" if broker.is_fenced else "live",
                *_counts(broker.node_id, partitions),
            )
            for broker in brokers
        ],
        title=f"cluster {cluster_id}",
    )


def _print_quorum(quorum: QuorumDescription) -> None:
    voters = {voter.node_id for voter in quorum.voters}
    rows = []
    for replica in (*quorum.voters, *quorum.observers):
        role = "leader" if replica.node_id == quorum.leader_id else "voter" if replica.node_id in voters else "observer"
        host, port = quorum.addresses.get(replica.node_id, ("", 0))
        address = f"{host}:{port}" if host else None
        lag = max(0, quorum.high_watermark - replica.log_end_offset) if replica.log_end_offset >= 0 else None
        rows.append((replica.node_id, address, role, replica.log_end_offset, lag))
    print_rows(
        ("node", "address", "role", "log end", "lag"),
        rows,
        title=f"metadata quorum, epoch {quorum.leader_epoch}, high watermark {quorum.high_watermark}",
    )


def _print_partitions(partitions: Sequence[_Partition], awaited: Mapping[str, tuple[int, ...]]) -> None:
    sick = [each for each in partitions if each.is_offline or each.is_under_replicated]
    offline = sum(each.is_offline for each in partitions)
    title = f"{count_text(len(partitions), 'partition')}, {len(sick) - offline} under-replicated, {offline} offline"
    if not sick:
        print(f"{title}: all well")
        return
    print_rows(
        ("topic", "partition", "leader", "replicas", "in sync", "state", "waits for broker"),
        [
            (
                each.topic,
                each.found.partition,
                None if each.is_offline else each.found.leader_id,
                each.found.replicas,
                each.found.isr,
                "offline" if each.is_offline else "under-replicated",
                awaited.get(_name(each)) or None,
            )
            for each in sick[:_SICK_SHOWN_MAX]
        ],
        title=title,
    )
    if len(sick) > _SICK_SHOWN_MAX:
        print(f"and {len(sick) - _SICK_SHOWN_MAX} more; --json shows all")


def _facts(
    cluster_id: str | None,
    brokers: Sequence[BrokerEntry],
    quorum: QuorumDescription | None,
    partitions: Sequence[_Partition],
    *,
    problem: str | None,
    awaited: Mapping[str, tuple[int, ...]],
) -> dict[str, Any]:
    broker_facts = []
    for broker in brokers:
        leads, replicas, in_sync = _counts(broker.node_id, partitions)
        broker_facts.append({**broker._asdict(), "leads": leads, "replicas": replicas, "in_sync": in_sync})
    return {
        "cluster_id": cluster_id,
        "brokers": broker_facts,
        "quorum": {"problem": problem}
        if quorum is None
        else {
            "leader_id": quorum.leader_id,
            "leader_epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            **{
                role: [
                    {**replica._asdict(), "directory_id": uuid_text(Uuid(replica.directory_id))} for replica in replicas
                ]
                for role, replicas in (("voters", quorum.voters), ("observers", quorum.observers))
            },
        },
        "partitions": len(partitions),
        "under_replicated": [_name(each) for each in partitions if each.is_under_replicated],
        "offline": [_name(each) for each in partitions if each.is_offline],
        "waits_for": {_name(each): awaited.get(_name(each), ()) for each in partitions if each.is_offline},
    }


def _name(each: _Partition) -> str:
    return f"{each.topic}-{each.found.partition}"
