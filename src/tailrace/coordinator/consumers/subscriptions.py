"""What groups are subscribed to: topics that come, go and grow, and regular expressions over their names.

A group's metadata hash tells whether a change of its topics matters to it (see `topics`). Regular expressions are those
of RE2, which take time linear in the length of a name, whatever the expression is, and bounded memory (see
docs/decisions/0015-regular-expressions.md); which topics they stand for is found in slices, and stored on the log.
Topics that the member which was heard last may not describe are left out, as in Kafka: what an expression stands for is
one thing for all members of a group. In both cases the group gets a new epoch and new targets, which its members learn
with their next heartbeats.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tailrace.controller.image import MetadataImage
from tailrace.controller.patterns import compile_pattern
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.consumers.records import epoch_record, regex_record
from tailrace.coordinator.consumers.targets import records_max_bytes, want_targets
from tailrace.coordinator.consumers.topics import combine, rack_of, topic_hash
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.history import Cause, Rebalance
from tailrace.coordinator.op import Call, Result, Steps, StoredRecord, unchanged
from tailrace.model.errors import KafkaError

# Topics hashed, and groups looked at, between two steps: some 0.3 ms without racks.
_STEP_TOPICS = 100
# Topics of the groups that get a new epoch in one batch: they are looked at again in one step.
_TOPICS_MAX = 3_000
# What a record takes beside names, and the longest character in UTF-8: a batch must hold all records.
_RECORD_BYTES = 100
_CHARACTER_BYTES = 4
# Topics that the history names as the cause of a rebalance.
_CHANGES_TOLD_MAX = 5
# Where one topic is created more may be.
_BATCH_MS = 1000
# Names matched between two steps, some 0.4 ms; fewer of an expression that takes long at worst (see `patterns`).
_STEP_NAMES = 100
_STEP_WORK = 2_500


def on_image(state: GroupState, call: Call, old: MetadataImage) -> Result:
    new = call.image
    if old.topics is not new.topics or rack_of(old) != rack_of(new):
        want_refresh(state, old)
    if old.topic_names is not new.topic_names:
        for group in _live_groups(state):
            if group.regex_counts:
                want_regexes_soon(state, call, group)
    return Result()


def want_refresh(state: GroupState, old: MetadataImage | None) -> None:
    """Compares all groups with the metadata as they are now; `old` are those of the last time."""
    key = "consumer.refresh", ""
    if key not in state.work and any(_live_groups(state)):
        state.work[key] = lambda begun: _refresh(state, begun, old)


def want_regexes(state: GroupState, group: ConsumerGroup, *, is_new: bool) -> None:
    """Resolves the expressions of a group: a new one, or all of them anew."""
    group.is_resolving = True
    key = "consumer.regexes", group.group_id
    if key not in state.work or not is_new:
        state.work[key] = lambda begun: _resolve(state, begun, group, is_new=is_new)


def want_regexes_soon(state: GroupState, call: Call, group: ConsumerGroup) -> None:
    """Topics came or went: those of one second make one rebalance."""
    due = group.group_id, "consumer.regexes", ""
    soon_ms = call.monotonic_ms + _BATCH_MS
    planned_ms = state.deadlines.get(due)
    if planned_ms is None or soon_ms < planned_ms:
        state.deadlines.set(due, soon_ms)


def _refresh(state: GroupState, call: Call, old: MetadataImage | None) -> Steps:
    hashes = _Hashes(call.image)
    suspects: list[ConsumerGroup] = []
    done = 0
    for group in list(_live_groups(state)):
        for name in list(group.topic_counts):
            hashes.add(name)
            done += 1
            if done % _STEP_TOPICS == 0:
                yield
        if hashes.of(group.topic_counts) != group.metadata_hash:
            suspects.append(group)
    # Members may have come and gone between the steps: what counts is what is so now.
    records: list[StoredRecord] = []
    room_bytes, room_topics = records_max_bytes(call), _TOPICS_MAX
    for group in suspects:
        room_bytes -= _RECORD_BYTES + _CHARACTER_BYTES * len(group.group_id)
        room_topics -= len(group.topic_counts)
        if records and min(room_bytes, room_topics) < 0:
            want_refresh(state, old)
            break
        if state.groups.get(group.group_id) is group and group.members:
            records += _rebalance(state, call, group, old, hashes)
    return Result(records, on_refused=unchanged)


class _Hashes:
    """The hashes of topics: those that were added in steps make the hash of a group a matter of microseconds."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._racks = rack_of(image)
        self._hashes: dict[str, int] = {}

    def add(self, name: str) -> None:
        if name not in self._hashes:
            topic = self._image.topics.get(name)
            self._hashes[name] = 0 if topic is None else topic_hash(topic, self._racks)

    def of(self, names: Collection[str]) -> int:
        """As `topics.metadata_hash` tells it."""
        for name in names:
            self.add(name)
        return combine(self._hashes[name] for name in names)


def _rebalance(
    state: GroupState, call: Call, group: ConsumerGroup, old: MetadataImage | None, hashes: _Hashes
) -> list[StoredRecord]:
    new_hash = hashes.of(group.topic_counts)
    if new_hash == group.metadata_hash:
        return []
    changes = [] if old is None else _describe_changes(sorted(group.topic_counts), old, call.image)
    detail = ", ".join(changes[:_CHANGES_TOLD_MAX]) or "topics or racks changed while the coordinator did"
    state.history.note(group.group_id, Rebalance(call.now_ms, Cause.PARTITIONS_CHANGED, detail, group.epoch + 1))
    want_targets(state, call, group)
    return [epoch_record(group.group_id, group.epoch + 1, new_hash)]


def _describe_changes(names: list[str], old: MetadataImage, new: MetadataImage) -> list[str]:
    told = []
    for name in names:
        before, after = old.topics.get(name), new.topics.get(name)
        if after is None and before is not None:
            told.append(f"topic {name} was deleted")
        elif after is not None and (before is None or before.id != after.id):
            told.append(f"topic {name} was created")
        elif before is not None and after is not None and len(before.partitions) != len(after.partitions):
            told.append(f"topic {name} has {len(after.partitions)} partitions now")
    return told or ["replicas are in other racks now"]


def _live_groups(state: GroupState) -> Iterator[ConsumerGroup]:
    return (group for group in state.groups.values() if isinstance(group, ConsumerGroup) and group.members)


def _resolve(state: GroupState, call: Call, group: ConsumerGroup, *, is_new: bool) -> Steps:
    found: dict[str, frozenset[str]] = {}
    hashes = _Hashes(call.image)
    may_describe = group.may_describe
    if may_describe is None and call.config.authorizer_class_name:
        # After a change of coordinators: until a member is heard nobody knows what it may know of.
        group.is_resolving = False
        want_regexes_soon(state, call, group)
        return Result()
    try:
        for regex in sorted(group.regex_counts):
            if is_new and regex in group.regexes:
                continue
            found[regex] = frozenset()
            try:
                pattern = compile_pattern(regex)
            except KafkaError:
                continue  # It was stored by a version that allowed more: here it matches nothing.
            topics: list[str] = []
            names_each = max(1, min(_STEP_NAMES, _STEP_WORK // pattern.programsize))
            for count, name in enumerate(call.image.topics):
                if pattern.fullmatch(name) and (may_describe is None or may_describe(name)):
                    topics.append(name)
                    hashes.add(name)
                if count % names_each == names_each - 1:
                    yield
            found[regex] = frozenset(topics)
    finally:
        # A member may have brought another one meanwhile: that is another run.
        group.is_resolving = ("consumer.regexes", group.group_id) in state.work
    if state.groups.get(group.group_id) is not group or not group.members:
        return Result()
    due = group.group_id, "consumer.regexes", ""
    if state.deadlines.get(due) is None:
        state.deadlines.set(due, call.monotonic_ms + call.config.group_consumer_regex_refresh_interval_ms)
    wanted = {regex: topics for regex, topics in found.items() if group.regex_counts[regex]}
    return _store(state, call, group, wanted, hashes)


def _store(
    state: GroupState, call: Call, group: ConsumerGroup, found: dict[str, frozenset[str]], hashes: _Hashes
) -> Result:
    """What does not fit into one batch is found anew by another run; an expression that fills more than a batch is
    taken as if it matched nothing."""
    records: list[StoredRecord] = []
    is_changed = False
    size_bytes = 0
    for regex in list(found):
        if sum(map(len, found[regex])) > records_max_bytes(call):
            found[regex] = frozenset()
        topics, old = found[regex], group.regexes.get(regex)
        if old is not None and old.topics == topics:
            continue
        key_bytes = _RECORD_BYTES + _CHARACTER_BYTES * (len(group.group_id) + len(regex))
        topics_bytes = sum(map(len, topics))
        if records and size_bytes + key_bytes + topics_bytes > records_max_bytes(call):
            del found[regex]
            want_regexes(state, group, is_new=False)
            continue
        size_bytes += key_bytes + topics_bytes
        version = call.image.next_offset
        records.append(regex_record(group.group_id, regex, topics, version=version, timestamp_ms=call.now_ms))
        is_changed = is_changed or bool(topics) or old is not None
    epoch = group.epoch
    if is_changed:
        epoch += 1
        topics_after = {name for member in group.members.values() for name in member.subscribed_topic_names}
        topics_after.update(*(resolved.topics for regex, resolved in group.regexes.items() if regex not in found))
        topics_after.update(*found.values())
        records.append(epoch_record(group.group_id, epoch, hashes.of(topics_after)))
        detail = f"expressions match {sum(len(topics) for topics in found.values())} topics"
        rebalance = group.resolving_for or Rebalance(call.now_ms, Cause.SUBSCRIPTION_CHANGED, detail, epoch)
        state.history.note(group.group_id, rebalance._replace(epoch=epoch))
    group.resolving_for = None
    for member_id, waiting in group.waiting.items():
        group.waiting[member_id] = waiting._replace(epoch=epoch)
        if epoch <= group.assignment_epoch and not group.is_resolving:
            state.deadlines.set((group.group_id, "consumer.answer", member_id), call.monotonic_ms)
    if epoch > group.assignment_epoch:
        want_targets(state, call, group)
    return Result(records, on_refused=unchanged)
