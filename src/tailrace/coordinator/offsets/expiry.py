"""Offsets that nobody has needed for long, and groups of which nothing is left.

Every offsets.retention.check.interval.ms all groups are looked at, in steps. An offset is kept for
offsets.retention.minutes from the moment at which its group became empty, or, if that is not known (a group that only
has offsets) or the group still works but no longer reads the topic, from its commit. A commit may have asked for a time
of its own. A group without members whose last offset has gone is deleted with it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.coordinator.groups import Due, Group, GroupState, GroupType
from tailrace.coordinator.offsets.batch_capacity import BatchCapacity
from tailrace.coordinator.offsets.simple import all_group_ids, find_group
from tailrace.coordinator.offsets.store import offset_record, read_offset
from tailrace.coordinator.op import Call, Result, Steps, StoredRecord, unchanged

_MINUTE_MS = 60_000
_CONSUMERS = "consumer"
_DUE: Due = ("", "offsets.expiry", "")
# Offsets read in one step, each in about two microseconds; a group counts as one too.
_READS_PER_STEP = 200


class _Place(NamedTuple):
    group_id: str
    topic: str
    partition: int
    value: bytes


def on_loaded(state: GroupState, call: Call) -> Result:
    _set_next(state, call)
    return Result()


def on_due(state: GroupState, call: Call, _due: Due) -> Result:
    _set_next(state, call)
    group_ids = deque(all_group_ids(state))
    state.work["offsets.expiry", ""] = lambda call: _expire(state, call, group_ids, set())
    return Result()


def _set_next(state: GroupState, call: Call) -> None:
    state.deadlines.set(_DUE, call.monotonic_ms + call.config.offsets_retention_check_interval_ms)


def _expire(state: GroupState, call: Call, group_ids: deque[str], done: set[str]) -> Steps:
    """The groups that are left to be looked at, until there is a batch of records; the rest follows as work anew."""
    room = BatchCapacity()
    expired: list[_Place] = []
    seen: list[str] = []
    reads = 0
    is_full = False
    while group_ids and not is_full:
        group_id = group_ids[0]
        reads += 1
        if reads % _READS_PER_STEP == 0:
            yield
        if group_id in done:
            group_ids.popleft()
            continue
        if not room.takes(group_id):  # For its own tombstone.
            break
        group_ids.popleft()
        done.add(group_id)
        seen.append(group_id)
        group = find_group(state, group_id)
        for place in _places(state, group_id):
            reads += 1
            if reads % _READS_PER_STEP == 0:
                yield
            if _is_expired(call, group, place):
                if not room.takes(group_id, place.topic):
                    group_ids.appendleft(group_id)
                    done.discard(group_id)
                    is_full = True
                    break
                expired.append(place)
    if group_ids:
        state.work["offsets.expiry", ""] = lambda call: _expire(state, call, group_ids, done)
    return Result(_decide_records(state, call, seen, expired), on_refused=unchanged)


def _places(state: GroupState, group_id: str) -> Iterator[_Place]:
    """The places of all offsets of a group, as they were when a topic's turn came."""
    for topic, held in list(state.offsets.topics(group_id).items()):
        for partition, value in list(held.items()):
            yield _Place(group_id, topic, partition, value)


def _is_expired(call: Call, group: Group | None, place: _Place) -> bool:
    if group is None or group.is_subscribed_to(place.topic) or not _may_expire(group):
        return False
    committed = read_offset(place.value)
    if committed.expire_timestamp_ms >= 0:
        return call.now_ms >= committed.expire_timestamp_ms
    since_ms = committed.commit_timestamp_ms
    if group.type is GroupType.CLASSIC and group.empty_since_ms is not None:
        since_ms = group.empty_since_ms
    return call.now_ms - since_ms >= call.config.offsets_retention_minutes * _MINUTE_MS


def _may_expire(group: Group) -> bool:
    """What a classic group with members reads is known only if it is stable and its members are consumers."""
    return (
        group.type is not GroupType.CLASSIC
        or group.is_empty
        or (group.protocol_type == _CONSUMERS and group.state_name == "Stable")
    )


def _decide_records(state: GroupState, call: Call, seen: list[str], expired: list[_Place]) -> list[StoredRecord]:
    """Tombstones for what is still as it was when it was looked at."""
    offsets = state.offsets
    records: list[StoredRecord] = []
    counts: Counter[str] = Counter()
    for place in expired:
        group_id, topic, partition, value = place
        is_same = offsets.topics(group_id).get(topic, {}).get(partition) is value
        is_wanted = not is_same or offsets.is_pending(group_id, topic, partition)
        if not is_wanted and _is_expired(call, find_group(state, group_id), place):
            records.append(offset_record(group_id, topic, partition, None))
            counts[group_id] += 1
    for group_id in seen:
        group = state.groups.get(group_id)
        has_left = counts[group_id] < sum(len(held) for held in offsets.topics(group_id).values())
        is_emptied = group is not None and group.is_empty and group.type is not GroupType.SHARE
        if group is not None and is_emptied and not has_left and not offsets.has_open_transaction(group_id):
            records += group.deletion_records()
    return records
