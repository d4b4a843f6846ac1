"""Members of a streams group in front of some coordinator: they write down what they hear."""

from collections.abc import Mapping
from typing import Any, Protocol

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest
from tailrace.wire.schema import Message, Struct

REBALANCE_MS = 1_000
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
            active_tasks=task_ids(active),
            standby_tasks=task_ids(standby),
            warmup_tasks=task_ids(None if active is None else {}),
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


def task_ids(tasks: Owned | None) -> list[_Request.TaskIds] | None:
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
