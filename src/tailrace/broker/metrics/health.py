"""Whether a node lives, is ready, and its cluster is whole. Pure but for what it is given to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.controller.image import NO_LEADER, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.broker.metrics.watched import Watched
    from tailrace.controller.image import MetadataImage

# Partitions that an answer names; it counts the others.
_NAMED_MAX = 20
_TURN_PARTITIONS = 16


class Health(NamedTuple):
    is_good: bool
    facts: dict[str, Any]  # As JSON has it: `status`, `reason` and numbers.


def live(watched: Watched) -> Health:
    """Whoever answers lives."""
    return _health([], node=watched.services.node_id)


def ready(watched: Watched) -> Health:
    """Whether clients may be sent here: registered, unfenced, recovered. A controller is ready once it knows a leader
    of the quorum, or is it."""
    services, lifecycle = watched.services, watched.node.lifecycle
    problems = [services.quorum.failure] if watched.node.is_running and services.quorum.failure is not None else []
    if watched.roles.is_broker:
        problems += _broker_problems(watched)
    elif not watched.node.is_running:
        problems.append("it is starting, or stopping")
    elif services.quorum.leadership.leader_id < 0:
        problems.append("no leader of the metadata quorum is known")
    epoch = -1 if lifecycle is None else lifecycle.broker_epoch
    return _health(problems, node=services.node_id, broker_epoch=epoch)


def _broker_problems(watched: Watched) -> list[str]:
    lifecycle = watched.node.lifecycle
    if lifecycle is None or lifecycle.broker_epoch < 0:
        return ["it is not registered: no controller has let it in yet"]
    if not watched.node.is_running:
        return ["its logs are being recovered, or it is stopping"]
    if lifecycle.is_fenced:
        return ["it is fenced: the controller does not hear it, or keeps it from leading"]
    if watched.services.replicas.lease.is_past:
        return ["its lease is over: it has not heard of the controller for too long"]
    return []


def cluster(watched: Watched) -> Iterator[Health | None]:
    """The last one counts; None is a place where others may have a turn."""
    services, image = watched.services, watched.services.image
    if not watched.node.is_running:
        yield _health(["this node is starting, or stopping"], node=services.node_id)
        return
    counts = {"offline": 0, "under_min_isr": 0, "under_replicated": 0}
    named: list[str] = []
    for topic in image.topics.values():
        least = _min_isr(watched, image, topic.name)
        for index, partition in topic.partitions.items():
            is_offline = partition.leader == NO_LEADER
            is_under_min = len(partition.isr) < min(least, len(partition.replicas))
            counts["offline"] += is_offline
            counts["under_min_isr"] += is_under_min
            counts["under_replicated"] += len(partition.isr) < len(partition.replicas)
            if (is_offline or is_under_min) and len(named) < _NAMED_MAX:
                named.append(f"{topic.name}-{index}")
            if index % _TURN_PARTITIONS == 0:
                yield None
    controller = services.quorum.leadership.leader_id
    problems = [] if controller >= 0 else ["there is no active controller"]
    if watched.node.tier is not None:
        problems += watched.node.tier.problems
    if counts["offline"]:
        problems.append(f"{counts['offline']} partitions have no leader")
    if counts["under_min_isr"]:
        problems.append(f"{counts['under_min_isr']} partitions have too few replicas in sync to be written to")
    fenced = sorted(each.node_id for each in image.brokers.values() if each.fenced)
    yield _health(problems, controller=controller, **counts, fenced_brokers=fenced, partitions=named)


def _min_isr(watched: Watched, image: MetadataImage, topic: str) -> int:
    text = image.config(ResourceType.TOPIC, topic).get("min.insync.replicas")
    return watched.services.config.min_insync_replicas if text is None else int(text)


def _health(problems: list[str], **facts: Any) -> Health:
    status = "fail" if problems else "pass"
    return Health(not problems, {"status": status, "reason": "; ".join(problems), **facts})
