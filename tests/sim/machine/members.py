"""Members of groups as a machine sees them: what they ask, and what they make of the answers.

Each does one thing a step: it looks at an answer that has come, or asks something. An answer may be lost on the way,
and a member may be slow, stall or die: that is up to whoever steps it. They follow the rules of Kafka's own client: a
partition is given up before that is told, or before the group is joined anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack, unpack_from

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.sim.checks.groups import Commit, GroupChecks, Session
from tailrace.sim.groups.members import COMMIT_REFUSALS
from tailrace.wire.apis.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tailrace.wire.apis.stored_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tailrace.wire.compile import decode, encode
from tests.sim.machine.bench import Asked, GroupBench

SESSION_MS = 3000
REBALANCE_MS = 30_000
_COMMIT_VERSION = 9  # The newest that names topics.
_FETCH_VERSION = 9
_METADATA_VERSION = 3

_UNLESS_LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH)


class ModelMember:
    """What both protocols share. `step` it; `leave` ends it, `die` too, without a word."""

    def __init__(
        self, bench: GroupBench, checks: GroupChecks, group_id: str, name: str, instance_id: str | None
    ) -> None:
        self.bench = bench
        self.checks = checks
        self.group_id = group_id
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = 0
        self.owned: set[TopicPartition] = set()
        self.session = Session(SESSION_MS / 1000)
        self.is_over = False
        self.topics = sorted(bench.image.topics)
        self.asked: Asked | None = None
        self._commit: Commit | None = None
        self._committed: Asked | None = None
        self._expected: dict[TopicPartition, int] | None = None
        self._fetched: Asked | None = None

    @property
    def identity(self) -> str:
        return self.instance_id or self.member_id

    def lose_answer(self) -> None:
        """The connection broke: it will ask again."""
        if self.asked is not None:
            self.asked.is_over = True
            self.asked = None

    def step(self) -> None:
        if self.is_over:
            return
        self._look_at_offsets()
        if self.asked is None:
            self.ask()
        elif self.asked.is_answered:
            asked, self.asked = self.asked, None
            self.hear(asked)

    def die(self) -> None:
        self.is_over = True
        self.checks.note_gone(self)

    def ask(self) -> None:
        raise NotImplementedError

    def hear(self, asked: Asked) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    # ---- whose what is

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self.owned -= gone
        self.checks.note_given_up(self, gone)

    def take(self, partitions: Iterable[TopicPartition]) -> None:
        new = sorted(set(partitions) - self.owned)
        self.owned.update(new)
        self.checks.note_assigned(self, new)

    # ---- offsets

    def commit(self) -> None:
        """What was processed of one partition: in this model, one record more than was committed."""
        if not self.owned or self._committed is not None or self._fetched is not None:
            return
        partition = self.bench.random.choice(sorted(self.owned))
        offset = self.checks.of(self.group_id).committed.get(partition, 0) + 1
        self._commit = self.checks.begin_commit(self, {partition: offset})
        stored = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=partition.topic, partitions=[stored])],
        )
        self._committed = self.bench.ask(request, client_id=self.name, api_version=_COMMIT_VERSION)

    def fetch_offsets(self) -> None:
        if self._fetched is None:
            self._expected = dict(self.checks.of(self.group_id).committed)
            group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group_id, topics=None)
            self._fetched = self.bench.ask(
                OffsetFetchRequest(groups=[group]), client_id=self.name, api_version=_FETCH_VERSION
            )

    def _look_at_offsets(self) -> None:
        if self._committed is not None and self._committed.is_answered:
            answer, self._committed = self._committed.answer, None
            if isinstance(answer, OffsetCommitResponse):
                code = answer.topics[0].partitions[0].error_code
                assert self._commit is not None
                if code == ErrorCode.NONE:
                    self.checks.note_committed(self._commit)
                elif code in COMMIT_REFUSALS:
                    self.checks.note_refused(self._commit)
        if self._fetched is not None and self._fetched.is_answered:
            found, self._fetched = self._fetched.answer, None
            if isinstance(found, OffsetFetchResponse) and not found.groups[0].error_code:
                offsets = {
                    TopicPartition(topic.name, PartitionIndex(each.partition_index)): each.committed_offset
                    for topic in found.groups[0].topics
                    for each in topic.partitions
                }
                assert self._expected is not None
                self.checks.judge_committed(self.group_id, self._expected, offsets)


class ConsumerMember(ModelMember):
    """A member of the protocol in which the coordinator assigns."""

    def __init__(self, *facts: object) -> None:
        super().__init__(*facts)  # type: ignore[arg-type]
        self.member_id = f"{self.name}-id"
        self.regex: str | None = None
        self._target: set[TopicPartition] | None = None
        self._is_full = True  # Whether the next heartbeat tells everything.

    def lose_answer(self) -> None:
        super().lose_answer()
        self._is_full = True

    def ask(self) -> None:
        if self._target is not None:
            self.give_up(self.owned - self._target)
            self.take(self._target)
        is_joining = self.epoch <= 0
        tells = self._is_full or is_joining
        owned = None
        if tells or self._target is not None:
            owned = [] if is_joining else self._owned_by_id()
        self._target = None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=max(self.epoch, 0),
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if tells else -1,
            subscribed_topic_names=(self.topics if self.regex is None else []) if tells else None,
            subscribed_topic_regex=self.regex if tells else None,
            topic_partitions=owned,
        )
        self.asked = self.bench.ask(request, client_id=self.name)

    def hear(self, asked: Asked) -> None:
        answer = asked.answer
        code = asked.error
        if isinstance(answer, ConsumerGroupHeartbeatResponse):
            code = ErrorCode(answer.error_code)
        if code in _UNLESS_LOST:
            self.give_up(set(self.owned))
            self.epoch, self._target, self._is_full = 0, None, True
        elif code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.die()  # Its place is taken, or the group has become a classic one without it.
        elif code is not ErrorCode.NONE:
            self._is_full = True
        else:
            assert isinstance(answer, ConsumerGroupHeartbeatResponse)
            self.session.hear(asked.asked_ms / 1000)
            self._is_full = False
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                names = self.bench.image.topic_names
                self._target = {
                    TopicPartition(names[Uuid(topic.topic_id)], PartitionIndex(index))
                    for topic in answer.assignment.topic_partitions
                    for index in topic.partitions
                    if topic.topic_id in names
                }

    def leave(self) -> None:
        self.give_up(set(self.owned))
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=-1 if self.instance_id is None else -2,
            instance_id=self.instance_id,
        )
        self.bench.ask(request, client_id=self.name)
        self.die()

    def _owned_by_id(self) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        topics = self.bench.image.topics
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topics[name].id, partitions=indexes)
            for name, indexes in by_topic(self.owned).items()
            if name in topics
        ]


class ClassicMember(ModelMember):
    """A member of the protocol in which a member assigns: eagerly by ranges, or cooperatively."""

    def __init__(self, *facts: object, is_cooperative: bool = False) -> None:
        super().__init__(*facts)  # type: ignore[arg-type]
        self.is_cooperative = is_cooperative
        self.protocols = ["cooperative-sticky"] if is_cooperative else ["range"]
        self.epoch = -1
        self._must_join = True
        self._joined: JoinGroupResponse | None = None
        # What it has assigned, if it leads: more partitions than that are a reason to join again.
        self._assigned: list[TopicPartition] | None = None

    def lose_answer(self) -> None:
        if self.asked is not None and isinstance(self.asked.request, SyncGroupRequest):
            self._must_join = True
        super().lose_answer()

    def ask(self) -> None:
        if self._joined is not None:
            self._sync(self._joined)
        elif self._must_join or self._assigned not in (None, self.all_partitions()):
            self._join()
        else:
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.epoch,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            self.asked = self.bench.ask(request, client_id=self.name)

    def hear(self, asked: Asked) -> None:
        answer = asked.answer
        code = asked.error
        if code is None:
            assert isinstance(answer, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse)
            code = ErrorCode(answer.error_code)
        # A coordinator that has the assignment already does not take a SyncGroup for a sign of life.
        if code is ErrorCode.NONE and not isinstance(answer, SyncGroupResponse):
            self.session.hear(asked.asked_ms / 1000)
        if code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(answer, JoinGroupResponse):
            self.member_id = answer.member_id
        elif code in _UNLESS_LOST:
            self.give_up(set(self.owned))
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.epoch, self._must_join, self._joined = -1, True, None
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.die()
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            if isinstance(answer, HeartbeatResponse):
                self.session.hear(asked.asked_ms / 1000)
            self._must_join, self._joined = True, None
        elif code is not ErrorCode.NONE:
            if isinstance(asked.request, SyncGroupRequest):
                self._must_join = True
        elif isinstance(answer, JoinGroupResponse):
            self.member_id, self.epoch = answer.member_id, answer.generation_id
            self._must_join, self._joined = False, answer
        elif isinstance(answer, SyncGroupResponse):
            self._accept(answer)

    def leave(self) -> None:
        self.give_up(set(self.owned))
        if self.instance_id is None and self.member_id:
            member = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
            self.bench.ask(LeaveGroupRequest(group_id=self.group_id, members=[member]), client_id=self.name)
        self.die()

    def _join(self) -> None:
        if not self.is_cooperative:
            self.give_up(set(self.owned))
        owned = [
            ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=indexes)
            for name, indexes in by_topic(self.owned).items()
        ]
        subscription = ConsumerProtocolSubscription(
            topics=self.topics, owned_partitions=owned, generation_id=self.epoch
        )
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=wrap(subscription))
                for name in self.protocols
            ],
        )
        self.asked = self.bench.ask(request, client_id=self.name)

    def _sync(self, joined: JoinGroupResponse) -> None:
        assignments = []
        is_leader = joined.leader == self.member_id
        self._assigned = None
        if is_leader and joined.skip_assignment:
            # What was assigned by its former self it does not know (KIP-814), and joins again to find out.
            self._assigned = []
        elif is_leader:
            self._assigned = self.all_partitions()
            assigned = self._assign(joined)
            assignments = [
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=wrap_assignment(partitions))
                for member_id, partitions in assigned.items()
            ]
        self._joined = None
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        self.asked = self.bench.ask(request, client_id=self.name)

    def _assign(self, joined: JoinGroupResponse) -> dict[str, set[TopicPartition]]:
        """In turn, by name; where members cooperate, what another one still has goes to nobody this time."""
        subscriptions = {
            each.member_id: decode(ConsumerProtocolSubscription, unpack_from(">h", each.metadata)[0], each.metadata, 2)
            for each in joined.members
        }
        names = {each.member_id: each.group_instance_id or each.member_id for each in joined.members}
        members = sorted(subscriptions, key=lambda member_id: names[member_id])
        owners: dict[TopicPartition, tuple[int, str]] = {}
        if joined.protocol_name == "cooperative-sticky":
            for member_id, subscription in subscriptions.items():
                for topic in subscription.owned_partitions:
                    for index in topic.partitions:
                        partition = TopicPartition(topic.topic, PartitionIndex(index))
                        claim = (subscription.generation_id, member_id)
                        owners[partition] = max(claim, owners.get(partition, claim))
        assigned: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
        for number, partition in enumerate(self.all_partitions()):
            member_id = members[number % len(members)]
            if owners.get(partition, (0, member_id))[1] == member_id:
                assigned[member_id].add(partition)
        return assigned

    def _accept(self, answer: SyncGroupResponse) -> None:
        found: set[TopicPartition] = set()
        if answer.assignment:
            assignment = decode(
                ConsumerProtocolAssignment, unpack_from(">h", answer.assignment)[0], answer.assignment, 2
            )
            found = {
                TopicPartition(topic.topic, PartitionIndex(index))
                for topic in assignment.assigned_partitions
                for index in topic.partitions
            }
        given_up = self.owned - found
        self.give_up(given_up)
        self.take(found)
        # What was given up has to be given to somebody else.
        self._must_join = self.is_cooperative and bool(given_up)

    def all_partitions(self) -> list[TopicPartition]:
        topics = self.bench.image.topics
        return [
            TopicPartition(name, PartitionIndex(index))
            for name in self.topics
            if name in topics
            for index in topics[name].partitions
        ]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


def wrap(subscription: ConsumerProtocolSubscription) -> bytes:
    return pack(">h", _METADATA_VERSION) + bytes(encode(subscription, _METADATA_VERSION))


def wrap_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    )
    return pack(">h", _METADATA_VERSION) + bytes(encode(assignment, _METADATA_VERSION))
