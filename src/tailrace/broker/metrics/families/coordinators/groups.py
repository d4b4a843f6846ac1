"""Groups that this broker coordinates: how many, in which state, and how far behind. Lag has kafka_exporter's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import nan
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import gauge, own_gauge
from tailrace.model.metrics.lag import Verdict
from tailrace.model.metrics.text import Kind, Metric, label

if TYPE_CHECKING:
    from tailrace.broker.coordinators.shard import Shard
    from tailrace.broker.metrics.lag.watch import LagWatch, PartitionLag
    from tailrace.broker.metrics.watched import Watched
    from tailrace.coordinator.groups import Group, GroupState
    from tailrace.model.metrics.text import Text

_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
_GROUPS = gauge(_MANAGER, "NumGroups", "Groups that this broker coordinates.")
_OFFSETS = gauge(_MANAGER, "NumOffsets", "Offsets that they have committed.")
_STATES = {
    state: gauge(_MANAGER, f"NumGroups{state}", f"Those whose state is {state}.")
    for state in ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead")
}
_SHARDS = own_gauge("group_coordinator_partitions", "Partitions of __consumer_offsets that are led here, by state.")
_STATE = own_gauge("group_state", "1, with the type and the state of the group.")
_LAG = Metric("kafka_consumergroup_lag", Kind.GAUGE, "Records that a group has not read.")
_CURRENT = Metric("kafka_consumergroup_current_offset", Kind.GAUGE, "What a group has committed.")
_LAG_SUM = Metric("kafka_consumergroup_lag_sum", Kind.GAUGE, "Records of a topic that a group has not read.")
_LAG_SECONDS = own_gauge("group_lag_seconds", "Age of the first record that a group has not read.")
_VERDICT = own_gauge("group_verdict", "1, with what is thought of a group: OK, WARN, STALL, STOP or REWIND.")
_LEFT_OUT = own_gauge(
    "metrics_group_partitions_left_out",
    "Partitions of groups beyond metrics.group.partitions.max: their lag is unknown.",
)
_OF_PARTITIONS: tuple[tuple[Metric, str, Callable[[PartitionLag], float]], ...] = (
    (_LAG, "consumergroup", lambda each: each.lag),
    (_CURRENT, "consumergroup", lambda each: each.committed),
    (_LAG_SECONDS, "group", lambda each: nan if each.lag_ms < 0 else each.lag_ms / 1000),
)
_CHUNK = 50


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    running = watched.services.coordination.running_groups
    shards = [] if running is None else list(running.shards.values())
    groups: list[Group] = []
    offsets = 0
    for shard in shards:
        held = _state_of(shard)
        groups += held.groups.values()
        offsets += len(held.offsets)
        yield ""
    states = Counter(group.state_name for group in groups)
    yield text.write(_GROUPS, [("", len(groups))])
    yield text.write(_OFFSETS, [("", offsets)])
    for state, metric in _STATES.items():
        yield text.write(metric, [("", states[state])])
    loaded = Counter(shard.state.value for shard in shards)
    yield text.write(_SHARDS, [(label(state=state), count) for state, count in sorted(loaded.items())])
    head, name = text.begin(_STATE)
    yield head if groups else ""
    bound = watched.services.config.metrics_group_partitions_max
    for start in range(0, min(bound, len(groups)), _CHUNK):
        yield "".join(
            [
                f"{name}{{{label(group=each.group_id, type=each.type, state=each.state_name)}}} 1\n"
                for each in groups[start : start + _CHUNK]
            ]
        )
    if watched.services.lag_watch is not None:
        yield from _lags(watched.services.lag_watch(), text)


def _state_of(shard: Shard) -> GroupState:
    from tailrace.coordinator.machine import GroupMachine  # Loaded where there are groups.

    assert isinstance(shard.machine, GroupMachine), "the shards of groups have such machines"
    return shard.machine.state


def _lags(watch: LagWatch, text: Text) -> Iterator[str]:
    found = list(watch.groups.items())
    if not found:
        return
    yield text.write(_LEFT_OUT, [("", watch.left_out_count)])
    for metric, key, value in _OF_PARTITIONS:
        head, name = text.begin(metric)
        yield head
        for group_id, group in found:
            group_label = label(**{key: group_id})
            partitions = list(group.partitions.items())
            for start in range(0, len(partitions), _CHUNK):
                yield "".join(
                    [
                        f'{name}{{{group_label},topic="{topic}",partition="{index}"}} {value(each)}\n'
                        for (topic, index), each in partitions[start : start + _CHUNK]
                    ]
                )
    head, name = text.begin(_LAG_SUM)
    yield head
    verdicts: list[str] = []
    for group_id, group in found:
        sums: Counter[str] = Counter()
        worst = Verdict.OK
        for number, ((topic, _index), each) in enumerate(group.partitions.items()):
            sums[topic] += each.lag
            worst = max(worst, each.verdict, key=lambda verdict: verdict.value)
            if number % _CHUNK == 0:
                yield ""
        for topic, lag in sums.items():
            yield f"{name}{{{label(consumergroup=group_id, topic=topic)}}} {lag}\n"
        verdicts.append(label(group=group_id, verdict=worst.name))
    head, name = text.begin(_VERDICT)
    yield head
    for labels in verdicts:
        yield f"{name}{{{labels}}} 1\n"
