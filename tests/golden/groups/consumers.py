"""Lives of consumer groups (KIP-848), to be led in front of any coordinator; they write down what members hear and what
is stored.

The range assignor, and an assignment interval of 0: what members hear then depends on nothing but the protocol. Answers
without an error leave out what is always the same.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tailrace.wire.schema import Message, Struct

SESSION_MS = 1_500
HEARTBEAT_MS = 500
REBALANCE_MS = 1_000
SIZE_MAX = 3

Owned = Mapping[str, list[int]]


class Coordinator(Protocol):
    def ask(self, request: ConsumerGroupHeartbeatRequest, version: int) -> ConsumerGroupHeartbeatResponse: ...

    def set_topics(self, sizes: Mapping[str, int]) -> None:
        """Creates, grows and deletes topics until there are these."""

    def pass_ms(self, duration_ms: int) -> None: ...

    def topic_ids(self) -> Mapping[bytes, str]:
        """The ids of all topics that ever were, with their names."""

    def records(self) -> list[tuple[Message, Message | None]]:
        """All that was ever stored of the group, in order."""


class Members:
    def __init__(self, coordinator: Coordinator, group_id: str) -> None:
        self.transcript: list[str] = []
        self._coordinator = coordinator
        self._group_id = group_id
        self._epochs: dict[str, int] = {}

    def topics(self, **sizes: int) -> None:
        self._coordinator.set_topics(sizes)

    def pass_ms(self, duration_ms: int) -> None:
        self._coordinator.pass_ms(duration_ms)

    def join(self, member_id: str, *topics: str, **fields: Any) -> None:
        given = {"subscribed_topic_names": list(topics or ("t",)), "server_assignor": "range"}
        self._send(member_id, 0, {}, {"rebalance_timeout_ms": REBALANCE_MS, **given, **fields})

    def beat(self, member_id: str, owned: Owned | None = None, epoch: int | None = None, **fields: Any) -> None:
        self._send(member_id, self._epochs.get(member_id, 0) if epoch is None else epoch, owned, fields)

    def finish(self) -> list[str]:
        names = self._coordinator.topic_ids()
        for key, value in self._coordinator.records():
            told = f"{type(key).__name__} {_tell(key, names)}"
            self.transcript.append(f"{told}: {'-' if value is None else _tell(value, names)}")
        return self.transcript

    def _send(self, member_id: str, epoch: int, owned: Owned | None, fields: Mapping[str, Any]) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self._group_id, member_id=member_id, member_epoch=epoch)
        names = self._coordinator.topic_ids()
        if owned is not None:
            ids = {name: topic_id for topic_id, name in names.items()}
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=ids[name], partitions=partitions)
                for name, partitions in owned.items()
            ]
        version = fields.get("version", 1)
        for name, value in fields.items():
            if name != "version":
                setattr(request, name, value)
        answer = self._coordinator.ask(request, version)
        if answer.error_code:
            told = ErrorCode(answer.error_code).name
        else:
            told = f"epoch {answer.member_epoch}"
            if answer.assignment is not None:
                told += f" {_tell(answer.assignment, names)}"
            self._epochs[member_id] = answer.member_epoch
        self.transcript.append(f"{member_id} in {epoch}: {told}")


def _tell(message: Struct, names: Mapping[bytes, str]) -> str:
    """Fields that differ from run to run are left out."""
    left_out = {"group_id", "client_host", "client_id", "metadata_hash", "assignment_timestamp", "timestamp", "version"}
    told = []
    for name, value in vars_of(message).items():
        if name == "topic_id":
            told.append(names[value])
        elif name not in left_out:
            told.append(f"{name}={_tell_value(value, names)}")
    return " ".join(told)


def _tell_value(value: object, names: Mapping[bytes, str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(sorted(_tell_value(each, names) for each in value))}]"
    return f"({_tell(value, names)})" if isinstance(value, Struct) else str(value)


def vars_of(message: Struct) -> dict[str, Any]:
    return {name: getattr(message, name) for name in type(message).__annotations__}


def one_member(m: Members) -> None:
    m.topics(t=2)
    m.join("a")
    m.beat("a")
    m.beat("a", {"t": [0, 1]})
    m.beat("a", {"t": [0, 1]}, subscribed_topic_names=["t"], rebalance_timeout_ms=REBALANCE_MS)
    m.beat("a", epoch=-1)


def two_members_share(m: Members) -> None:
    m.topics(t=4)
    m.join("a")
    m.join("b")
    m.beat("b", {})
    m.beat("a", {"t": [0, 1, 2, 3]})
    m.beat("a", {"t": [0, 1, 2, 3]})
    m.beat("b", {})
    m.beat("a", {"t": [0, 1]})
    m.beat("b", {})
    m.beat("a", {"t": [0, 1]})
    m.beat("b", {"t": [2, 3]})


def one_leaves_and_the_other_gets_its_partitions(m: Members) -> None:
    two_members_share(m)
    m.beat("a", epoch=-1)
    m.beat("b", {"t": [2, 3]})
    m.beat("a")


def a_third_joins_while_the_second_waits(m: Members) -> None:
    m.topics(t=6)
    m.join("a")
    m.join("b")
    m.beat("a", {"t": [0, 1, 2, 3, 4, 5]})
    m.join("c")
    m.beat("b", {})
    m.beat("a", {"t": [0, 1, 2]})
    m.beat("b", {})
    m.beat("c", {})
    m.beat("a", {"t": [0, 1]})
    m.beat("b", {})
    m.beat("c", {})
    m.beat("b", {"t": [2, 3]})
    m.beat("c", {"t": [4, 5]})


def a_silent_member_times_out(m: Members) -> None:
    m.topics(t=2)
    m.join("a")
    m.join("b")
    m.pass_ms(SESSION_MS * 2 // 3)
    m.beat("b", {})
    m.pass_ms(SESSION_MS * 2 // 3)
    m.beat("b", {})
    m.beat("a")
    m.join("a")
    m.beat("b", {"t": [0, 1]})


def who_keeps_what_it_must_give_up_is_out(m: Members) -> None:
    m.topics(t=2)
    m.join("a")
    m.join("b")
    m.beat("a", {"t": [0, 1]})
    m.pass_ms(REBALANCE_MS * 3 // 5)
    m.beat("a", {"t": [0, 1]})
    m.beat("b", {})
    m.pass_ms(REBALANCE_MS * 3 // 5)
    m.beat("a", {"t": [0, 1]})
    m.beat("b", {})


def lost_answers(m: Members) -> None:
    m.topics(t=4)
    m.join("a")
    m.join("a")
    m.join("b")
    m.beat("a", {"t": [0, 1, 2, 3]})
    m.beat("a", {"t": [0, 1]})
    m.beat("a", {"t": [0, 1]}, epoch=2)
    m.beat("a", {"t": [0]}, epoch=2)
    m.beat("a", {"t": [0, 1, 2]}, epoch=2)
    m.beat("a", epoch=2)
    m.beat("a", {"t": [0, 1]}, epoch=1)
    m.beat("a", {"t": [0, 1]}, epoch=9)
    m.beat("x", epoch=1)
    m.beat("x", epoch=-1)


def subscriptions_change(m: Members) -> None:
    m.topics(t=2, u=2)
    m.join("a", "t")
    m.beat("a", {"t": [0, 1]}, subscribed_topic_names=["t", "u"])
    m.beat("a", {"t": [0, 1], "u": [0, 1]}, subscribed_topic_names=["u"])
    m.beat("a", {"u": [0, 1]})
    m.beat("a", {"u": [0, 1]}, subscribed_topic_names=[])
    m.beat("a", {})
    m.join("b", "missing")
    m.beat("b", {}, subscribed_topic_names=["u"], server_assignor="uniform", rack_id="r")


def topics_grow_and_go(m: Members) -> None:
    m.topics(t=1, u=1)
    m.join("a", "t", "u", "v")
    m.topics(t=2, u=1)
    m.beat("a", {"t": [0], "u": [0]})
    m.topics(t=2)
    m.beat("a", {"t": [0, 1], "u": [0]})
    m.beat("a", {"t": [0, 1]})
    m.topics(t=2, v=1)
    m.beat("a", {"t": [0, 1]})


def a_static_member_comes_back(m: Members) -> None:
    m.topics(t=2)
    m.join("a", instance_id="i")
    m.join("b", instance_id="i")
    m.beat("a", epoch=-2, instance_id="i")
    m.join("b", instance_id="i")
    m.beat("a", {"t": [0, 1]}, epoch=2, instance_id="i")
    m.beat("a", epoch=-1, instance_id="i")
    m.beat("b", {"t": [0, 1]}, instance_id="i")
    m.beat("b", {"t": [0, 1]}, instance_id="j")
    m.beat("b", epoch=-1, instance_id="i")
    m.join("c", instance_id="i")


def a_static_member_comes_back_changed(m: Members) -> None:
    m.topics(t=2, u=2)
    m.join("a", instance_id="i")
    m.join("z")
    m.beat("a", {"t": [0, 1]}, instance_id="i")
    m.beat("a", epoch=-2, instance_id="i")
    m.beat("z", {})
    m.join("b", "t", "u", instance_id="i")
    m.beat("z", {})
    m.beat("b", {"t": [0], "u": [0, 1]}, instance_id="i")


def a_static_member_stays_away(m: Members) -> None:
    m.topics(t=2)
    m.join("a", instance_id="i")
    m.beat("a", epoch=-2, instance_id="i")
    m.pass_ms(SESSION_MS * 4 // 3)
    m.join("b", instance_id="i")


def what_is_refused(m: Members) -> None:
    m.topics(t=2)
    m.beat("a", epoch=1)
    m.beat("a", epoch=-1)
    m.join("a", rebalance_timeout_ms=-1)
    m.join("a", subscribed_topic_names=None)
    m.join("a", topic_partitions=None)
    m.join("a", instance_id="")
    m.join("a", rack_id="")
    m.join("a", server_assignor="sticky")
    m.join("")
    m.join("a", subscribed_topic_names=None, subscribed_topic_regex="[")
    m.beat("a", epoch=-3)
    m.beat("a", epoch=-2)
    for member_id in "abcd":
        m.join(member_id)
    m.beat("b", {"t": [0]}, epoch=0)


SCENARIOS: list[Callable[[Members], None]] = [
    one_member,
    two_members_share,
    one_leaves_and_the_other_gets_its_partitions,
    a_third_joins_while_the_second_waits,
    a_silent_member_times_out,
    who_keeps_what_it_must_give_up_is_out,
    lost_answers,
    subscriptions_change,
    topics_grow_and_go,
    a_static_member_comes_back,
    a_static_member_comes_back_changed,
    a_static_member_stays_away,
    what_is_refused,
]
