"""Lives of streams groups (KIP-1071), to be led in front of any coordinator; they write down what members hear and what
is stored.

Without an initial delay and an assignment interval, but where a scenario asks for them: what members hear then depends
on nothing but the protocol. Answers leave out what is always the same. To record what Apache Kafka answers, into
streams.json beside this file:

    PYTHONPATH=src python -m tests.golden.groups.record_streams CLASS_PATH
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.streams import StreamsGroupHeartbeatRequest
from tailrace.wire.schema import Message, Struct

SESSION_MS = 1_500
HEARTBEAT_MS = 500
REBALANCE_MS = 1_000
SIZE_MAX = 3
DELAY_MS = 1_000
SETTINGS = {
    "group.streams.session.timeout.ms": SESSION_MS,
    "group.streams.min.session.timeout.ms": SESSION_MS,
    "group.streams.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.streams.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.streams.max.size": SIZE_MAX,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
}
_MISSING = "Internal topics are missing: "
# Differ from run to run.
_LEFT_OUT = {"group_id", "client_host", "client_id", "metadata_hash", "assignment_timestamp", "throttle_time_ms"}

_Request = StreamsGroupHeartbeatRequest
Owned = Mapping[str, list[int]]


class Coordinator(Protocol):
    def ask(self, request: Message) -> Any: ...

    def set_topics(self, sizes: Mapping[str, int]) -> None:
        """Creates, grows and deletes topics until there are these."""

    def wait_created(self, names: list[str]) -> None:
        """Until the group has made these topics."""

    def set_config(self, name: str, value: str) -> None:
        """Of the group."""

    def pass_ms(self, duration_ms: int) -> None: ...

    def records(self) -> list[tuple[Message, Message | None]]:
        """All that was ever stored of the group but for offsets, in order."""


def subtopology(
    name: str = "0",
    *,
    sources: list[str] | None = None,
    sinks: list[str] | None = None,
    repartitions: Mapping[str, int] | None = None,
    changelogs: list[str] | None = None,
    together: tuple[list[int], list[int]] | None = None,
) -> Struct:
    pairs = [_Request.KeyValue(key="cleanup.policy", value="compact")]
    return _Request.Subtopology(
        subtopology_id=name,
        source_topics=["in"] if sources is None else sources,
        repartition_sink_topics=sinks or [],
        repartition_source_topics=[
            _Request.TopicInfo(name=each, partitions=count) for each, count in (repartitions or {}).items()
        ],
        state_changelog_topics=[_Request.TopicInfo(name=each, topic_configs=pairs) for each in changelogs or []],
        copartition_groups=[_Request.CopartitionGroup(source_topics=together[0], repartition_source_topics=together[1])]
        if together
        else [],
    )


class Members:
    def __init__(self, coordinator: Coordinator, group_id: str) -> None:
        self.transcript: list[str] = []
        self._coordinator = coordinator
        self._group_id = group_id
        self._epochs: dict[str, int] = {}

    def topics(self, **sizes: int) -> None:
        self._coordinator.set_topics({f"{self._group_id}-{name}": size for name, size in sizes.items()})

    def wait_created(self, *names: str) -> None:
        self._coordinator.wait_created([f"{self._group_id}-{name}" for name in names])

    def config(self, name: str, value: str) -> None:
        self._coordinator.set_config(name, value)

    def pass_ms(self, duration_ms: int) -> None:
        self._coordinator.pass_ms(duration_ms)

    def join(self, member_id: str, *subtopologies: Struct, epoch: int = 0, **fields: Any) -> None:
        given: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "process_id": f"p{member_id}",
            "client_tags": [],
            "topology": _Request.Topology(epoch=epoch, subtopologies=list(subtopologies or [subtopology()])),
            "endpoint_information_epoch": -1,
        }
        self._send(member_id, 0, {}, {}, given | fields)

    def beat(
        self,
        member_id: str,
        active: Owned | None = None,
        standby: Owned | None = None,
        epoch: int | None = None,
        **fields: Any,
    ) -> None:
        if active is not None and standby is None:
            standby = {}
        known = self._epochs.get(member_id, 0)
        self._send(member_id, known if epoch is None else epoch, active, standby, fields)

    def describe(self) -> None:
        from tailrace.wire.apis.streams import StreamsGroupDescribeRequest

        (group,) = self._coordinator.ask(StreamsGroupDescribeRequest(group_ids=[self._group_id])).groups
        self._write(f"described: {_tell(group)}")

    def finish(self) -> list[str]:
        for key, value in self._coordinator.records():
            told = f"{type(key).__name__} {_tell(key)}"
            self._write(f"{told}: {'-' if value is None else _tell(value)}")
        return self.transcript

    def _send(
        self, member_id: str, epoch: int, active: Owned | None, standby: Owned | None, fields: Mapping[str, Any]
    ) -> None:
        request = _Request(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            active_tasks=_tasks(active),
            standby_tasks=_tasks(standby),
            warmup_tasks=_tasks(None if active is None else {}),
        )
        for name, value in fields.items():
            setattr(request, name, value)
        if request.topology is not None:
            self._name_topics(request.topology)
        answer = self._coordinator.ask(request)
        if answer.error_code:
            self._write(f"{member_id} in {epoch}: {ErrorCode(answer.error_code).name} {answer.error_message}")
            return
        self._epochs[member_id] = answer.member_epoch
        self._write(f"{member_id} in {epoch}: {_tell(answer)}")

    def _name_topics(self, topology: Any) -> None:
        """Each group has topics of its own."""
        prefix = f"{self._group_id}-"
        for each in topology.subtopologies:
            each.source_topics = [prefix + name.removeprefix(prefix) for name in each.source_topics]
            each.repartition_sink_topics = [prefix + name.removeprefix(prefix) for name in each.repartition_sink_topics]
            for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
                topic.name = prefix + topic.name.removeprefix(prefix)

    def _write(self, line: str) -> None:
        self.transcript.append(line.replace(f"{self._group_id}-", "").replace(self._group_id, "GROUP"))


def _tasks(tasks: Owned | None) -> list[_Request.TaskIds] | None:
    if tasks is None:
        return None
    return [_Request.TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in tasks.items()]


def _tell(message: Struct) -> str:
    told = []
    for field in message.fields:
        value = getattr(message, field.name)
        if field.name not in _LEFT_OUT and value != field.fresh_default():
            told.append(f"{field.name}={_tell_value(value)}")
    return " ".join(told)


def _tell_value(value: object) -> str:
    if isinstance(value, str) and value.startswith(_MISSING):
        return _MISSING + ", ".join(sorted(value.removeprefix(_MISSING).split(", ")))  # Kafka tells them in any order.
    if isinstance(value, list):
        return f"[{', '.join(sorted(_tell_value(each) for each in value))}]"
    return f"({_tell(value)})" if isinstance(value, Struct) else str(value)


COUNTED = {"changelogs": ["store-changelog"]}


def one_member(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a")
    m.beat("a")
    m.beat("a", {"0": [0, 1]})
    m.describe()
    m.beat("a", epoch=-1)
    m.describe()


def two_members_share(m: Members) -> None:
    m.topics(**{"in": 4})
    m.join("a")
    m.join("b")
    m.beat("b", {})
    m.beat("a", {"0": [0, 1, 2, 3]})
    m.beat("a", {"0": [0, 1, 2, 3]})
    m.beat("b", {})
    m.describe()
    m.beat("a", {"0": [0, 1]})
    m.beat("b")
    m.beat("a", {"0": [0, 1]})
    m.beat("b", {"0": [2, 3]})


def one_leaves_and_the_other_gets_its_tasks(m: Members) -> None:
    two_members_share(m)
    m.beat("a", epoch=-1)
    m.beat("b")
    m.beat("b", {"0": [0, 1, 2, 3]})
    m.beat("a")


def a_third_joins_while_the_second_waits(m: Members) -> None:
    m.topics(**{"in": 6})
    m.join("a")
    m.join("b")
    m.beat("a", {"0": [0, 1, 2, 3, 4, 5]})
    m.join("c")
    m.beat("b")
    m.beat("a", {"0": [0, 1, 2]})
    m.beat("b")
    m.beat("c")
    m.beat("a", {"0": [0, 1]})
    m.beat("b")
    m.beat("c")
    m.beat("b", {"0": [3, 4]})
    m.beat("c", {"0": [2, 5]})
    m.join("d")


def a_silent_member_times_out(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a")
    m.join("b")
    m.pass_ms(SESSION_MS * 2 // 3)
    m.beat("b")
    m.pass_ms(SESSION_MS * 2 // 3)
    m.beat("b")
    m.beat("a")
    m.join("a")
    m.beat("b", {"0": [0, 1]})


def who_keeps_what_it_must_give_up_is_out(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a")
    m.join("b")
    m.beat("a", {"0": [0, 1]})
    m.pass_ms(REBALANCE_MS * 3 // 5)
    m.beat("a", {"0": [0, 1]})
    m.beat("b")
    m.pass_ms(REBALANCE_MS * 3 // 5)
    m.beat("a", {"0": [0, 1]})
    m.beat("b")


def lost_answers(m: Members) -> None:
    m.topics(**{"in": 4})
    m.join("a")
    m.join("a")
    m.join("b")
    m.beat("a", {"0": [0, 1, 2, 3]})
    m.beat("a", {"0": [0, 1]})
    m.beat("a", {"0": [0, 1]}, epoch=2)
    m.beat("a", {"0": [0]}, epoch=2)
    m.beat("a", {"0": [0, 1, 2]}, epoch=2)
    m.beat("a", epoch=2)
    m.beat("a", {"0": [0, 1]}, epoch=1)
    m.beat("a", {"0": [0, 1]}, epoch=9)
    m.beat("x", epoch=1)
    m.beat("x", epoch=-1)


def a_state_has_a_changelog(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a", subtopology(**COUNTED))
    m.describe()
    m.wait_created("store-changelog")
    m.beat("a")
    m.describe()
    m.beat("a", {"0": [0, 1]})


def topics_between_subtopologies(m: Members) -> None:
    m.topics(**{"in": 3, "other": 2})
    first = subtopology("0", sinks=["by-key-repartition"])
    second = subtopology(
        "1", sources=[], repartitions={"by-key-repartition": 0}, changelogs=["counts-changelog"], together=([], [0])
    )
    m.join("a", first, second)
    m.wait_created("by-key-repartition", "counts-changelog")
    m.beat("a")
    m.describe()


def topics_that_are_joined(m: Members) -> None:
    m.topics(**{"in": 3, "table": 2})
    first = subtopology("0", sinks=["by-key-repartition"])
    joined = subtopology("1", sources=["table"], repartitions={"by-key-repartition": 0}, together=([0], [0]))
    m.join("a", first, joined)
    m.wait_created("by-key-repartition")
    m.beat("a")
    m.describe()


def topics_that_cannot_be_joined(m: Members) -> None:
    m.topics(**{"in": 3, "table": 2})
    m.join("a", subtopology(sources=["in", "table"], together=([0, 1], [])))
    m.describe()
    m.topics(**{"in": 3, "table": 3})
    m.beat("a")


def as_many_as_the_application_says(m: Members) -> None:
    m.topics(**{"in": 3, "table": 2})
    first = subtopology("0", sinks=["by-key-repartition"])
    joined = subtopology("1", sources=["table"], repartitions={"by-key-repartition": 5}, together=([0], [0]))
    m.join("a", first, joined)
    alone = subtopology("1", sources=[], repartitions={"by-key-repartition": 5}, together=([], [0]))
    m.join("a", first, alone)
    m.join("b", first, alone, epoch=1)


def source_topics_are_missing(m: Members) -> None:
    m.join("a", subtopology(sources=["e", "d", "c", "b", "in"]))
    m.beat("a")
    m.join("a", subtopology())
    m.beat("a", epoch=-1)


def source_topics_come_grow_and_go(m: Members) -> None:
    m.join("a")
    m.topics(**{"in": 1})
    m.beat("a")
    m.topics(**{"in": 2})
    m.beat("a")
    m.beat("a", {"0": [0, 1]})
    m.topics()
    m.beat("a")
    m.beat("a", {})


def a_topology_grows_old(m: Members) -> None:
    m.topics(**{"in": 1, "more": 1})
    m.join("a", epoch=3)
    m.join("b", epoch=2)
    m.beat("b")
    m.join("c", epoch=4)
    m.join("c", subtopology(sources=["more"]), epoch=3)
    m.join("c", epoch=3)


def standbys(m: Members) -> None:
    m.topics(**{"in": 2, "store-changelog": 2})
    m.config("streams.num.standby.replicas", "1")
    counting = subtopology(**COUNTED)
    m.join("a", counting)
    m.join("b", counting)
    m.beat("a", {"0": [0, 1]})
    m.beat("a", {"0": [0]})
    m.beat("b", {})
    m.beat("a", {"0": [0]}, {"0": [1]})
    m.beat("b", {"0": [1]}, {"0": [0]})
    m.beat("a", epoch=-1)
    m.beat("b")
    m.beat("b", {"0": [1]}, {})
    m.beat("b", {"0": [0, 1]}, {})
    m.config("streams.num.standby.replicas", "0")
    m.beat("b")


def threads_of_one_process(m: Members) -> None:
    m.topics(**{"in": 2, "store-changelog": 2})
    m.config("streams.num.standby.replicas", "1")
    counting = subtopology(**COUNTED)
    m.join("a", counting, process_id="p")
    m.join("b", counting, process_id="p")
    m.beat("a", {"0": [0]})
    m.beat("b")
    m.beat("b", {"0": [1]})
    m.describe()


def endpoints(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a", user_endpoint=_Request.Endpoint(host="ha", port=1))
    m.beat("a", endpoint_information_epoch=0)
    m.join(
        "b", user_endpoint=_Request.Endpoint(host="hb", port=65535), client_tags=[_Request.KeyValue(key="z", value="1")]
    )
    m.beat("a", {"0": [0]}, endpoint_information_epoch=0)
    m.beat("b", {}, endpoint_information_epoch=1)
    m.beat("b", {"0": [1]}, endpoint_information_epoch=3)


def all_are_to_stop(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a")
    m.join("b")
    m.beat("a", shutdown_application=True)
    m.beat("b")
    m.beat("a", epoch=-1)
    m.beat("b", epoch=-1, shutdown_application=True)
    m.join("b")


def the_first_assignment_waits(m: Members) -> None:
    m.topics(**{"in": 2})
    m.config("streams.initial.rebalance.delay.ms", str(DELAY_MS))
    m.join("a")
    m.join("b")
    m.beat("a")
    m.pass_ms(DELAY_MS * 3 // 2)
    m.beat("b")
    m.beat("a")


def assignments_take_turns(m: Members) -> None:
    m.topics(**{"in": 2})
    m.config("streams.assignment.interval.ms", str(DELAY_MS))
    m.join("a")
    m.join("b")
    m.beat("a", {"0": [0, 1]})
    m.pass_ms(DELAY_MS * 5 // 4)
    m.beat("a", {"0": [0, 1]})
    m.beat("b")


def what_is_refused(m: Members) -> None:
    m.topics(**{"in": 2})
    m.beat("a", epoch=1)
    m.beat("a", epoch=-1)
    m.join("a", rebalance_timeout_ms=-1)
    m.join("a", topology=None)
    m.join("a", instance_id="i")
    m.join("a", instance_id="")
    m.join("a", rack_id="")
    m.join("a", active_tasks=_tasks({"0": [0]}))
    m.join("a", standby_tasks=_tasks({"0": [0]}))
    m.join("a", warmup_tasks=_tasks({"0": [0]}))
    m.join("a", standby_tasks=None)
    m.join("a", task_offsets=[])
    m.join("a", task_end_offsets=[])
    m.join("")
    m.beat("a", epoch=-3)
    m.beat("a", epoch=-2)
    m.join("a")
    m.beat("a", {"1": [0]})
    m.beat("a", {"0": [2]})
    m.beat("a", topology=_Request.Topology(epoch=0, subtopologies=[subtopology()]))


def topologies_that_are_refused(m: Members) -> None:
    m.topics(**{"in": 2})
    regex = subtopology()
    regex.source_topic_regex = ["a.*"]
    m.join("a", regex)
    fixed = subtopology(**COUNTED)
    fixed.state_changelog_topics[0].partitions = 2
    m.join("a", fixed)
    m.join("a", subtopology(sources=[], changelogs=["x-changelog"]))
    m.join("a", subtopology(repartitions={"nobody-writes-it": 0}))
    m.join("a", subtopology(sources=[], sinks=["r"], repartitions={"r": 0}))
    m.join("a", subtopology(sources=["not a name", "in"]))


SCENARIOS: list[Callable[[Members], None]] = [
    one_member,
    two_members_share,
    one_leaves_and_the_other_gets_its_tasks,
    a_third_joins_while_the_second_waits,
    a_silent_member_times_out,
    who_keeps_what_it_must_give_up_is_out,
    lost_answers,
    a_state_has_a_changelog,
    topics_between_subtopologies,
    topics_that_are_joined,
    topics_that_cannot_be_joined,
    as_many_as_the_application_says,
    source_topics_are_missing,
    source_topics_come_grow_and_go,
    a_topology_grows_old,
    standbys,
    threads_of_one_process,
    endpoints,
    all_are_to_stop,
    the_first_assignment_waits,
    assignments_take_turns,
    what_is_refused,
    topologies_that_are_refused,
]
