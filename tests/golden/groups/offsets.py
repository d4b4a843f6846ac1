"""Questions about offsets and groups, to be asked of Kafka and of us: `ask_all` gives the answers as plain data.

`python -m tests.golden.groups.offsets PORT` asks a single broker on this machine, with
offsets.topic.replication.factor=1 and group.initial.rebalance.delay.ms=0, and prints what belongs into offsets.json.
"""

import asyncio
import json
import os
import sys
from typing import Any

from tailrace.wire.apis.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tailrace.wire.schema import Message, Struct
from tests.unit.broker.world import Peer, create_topic, delete_topic

UNKNOWN_ID = b"u" * 16
_NOT_READY = (14, 15, 16)  # What a broker answers that does not coordinate the group, or not yet.
_LONGEST_METADATA = "m" * 4096

Place = tuple[str, int, int] | tuple[str, int, int, str]


class Asking:
    """Names end in a suffix of 9 characters, so that a broker can be asked more than once; answers are told without
    it."""

    def __init__(self, peer: Peer, suffix: str) -> None:
        self.peer = peer
        self.suffix = suffix
        self.answers: dict[str, Any] = {}
        self.member_id = ""
        self._ids: dict[bytes, str] = {}
        self._replaced = {suffix: "", _LONGEST_METADATA: "long"}

    def name(self, text: str) -> str:
        return text + self.suffix

    async def create(self, *topics: str) -> dict[str, bytes]:
        ids = {topic: bytes(await create_topic(self.peer, self.name(topic), 3)) for topic in topics}
        self._ids |= {topic_id: topic for topic, topic_id in ids.items()}
        return ids

    async def ask(self, label: str, request: Message, version: int) -> Any:
        answer = await self.peer.request(request, version)
        assert label not in self.answers
        self.answers[label] = self._plain(answer)
        return answer

    def forget(self, member_id: str) -> None:
        """It is random."""
        self.member_id = member_id
        self._replaced[member_id] = "member"

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Struct | Message):
            fields = {name: self._plain(getattr(value, name)) for name in value.__slots__ if not name.startswith("_")}
            return {name: each for name, each in fields.items() if name != "throttle_time_ms"}
        if isinstance(value, list):
            # In Kafka the order of most of them is that of a hash table.
            return sorted(map(self._plain, value), key=str)
        if isinstance(value, bytes):
            return self._ids.get(value, value.replace(self.suffix.encode(), bytes(len(self.suffix))).hex())
        if isinstance(value, str):
            for text, replacement in self._replaced.items():
                value = value.replace(text, replacement)
        return value

    # ---- requests

    def commit(self, group: str, *places: Place, topic_id: bytes | None = None, **rest: Any) -> OffsetCommitRequest:
        topics: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for topic, partition, offset, *metadata in places:
            topics.setdefault(topic, []).append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=metadata[0] if metadata else None,
                )
            )
        return OffsetCommitRequest(
            group_id=self.name(group) if group else "",
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name="" if topic_id else self.name(topic), topic_id=topic_id or bytes(16), partitions=partitions
                )
                for topic, partitions in topics.items()
            ],
            **rest,
        )

    def fetch(
        self, group: str, *topics: tuple[str, list[int]], topic_id: bytes | None = None, **rest: Any
    ) -> OffsetFetchRequest:
        """Without topics, of all."""
        asked = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name="" if topic_id else self.name(topic), topic_id=topic_id or bytes(16), partition_indexes=partitions
            )
            for topic, partitions in topics
        ]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.name(group), topics=asked or None, **rest)]
        )

    def delete(self, group: str, *places: tuple[str, int]) -> OffsetDeleteRequest:
        topics: dict[str, list[OffsetDeleteRequest.OffsetDeleteRequestPartition]] = {}
        for topic, partition in places:
            each = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
            topics.setdefault(topic, []).append(each)
        return OffsetDeleteRequest(
            group_id=self.name(group) if group else "",
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(name=self.name(topic), partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )


async def ask_all(peer: Peer, suffix: str) -> dict[str, Any]:
    asking = Asking(peer, suffix)
    ids = await asking.create("t", "u", "gone")
    await _wait_for_coordinator(asking)
    await _ask_simple(asking, ids)
    await _ask_live(asking)
    await _ask_about_groups(asking)
    await _ask_deleted_topic(asking)
    return asking.answers


async def _wait_for_coordinator(asking: Asking) -> None:
    for _ in range(100):
        found = await asking.peer.request(FindCoordinatorRequest(coordinator_keys=[asking.name("a")]), 6)
        fetched = await asking.peer.request(asking.fetch("a"), 9)
        if not found.coordinators[0].error_code and fetched.groups[0].error_code not in _NOT_READY:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("no coordinator")


async def _ask_simple(asking: Asking, ids: dict[str, bytes]) -> None:
    """A group that never has members."""
    ask, commit, fetch = asking.ask, asking.commit, asking.fetch
    too_long = ("u", 1, 7, _LONGEST_METADATA + "m")
    mixed = commit("a", ("t", 0, 5, "m"), ("t", 9, 5), ("nowhere", 0, 1), too_long, ("u", 2, 7, _LONGEST_METADATA))
    await ask("commit, in part refused", mixed, 9)
    await ask("commit without metadata", commit("a", ("t", 1, 6)), 8)
    await ask("commit of a negative offset", commit("a", ("t", 2, -5)), 8)
    await ask("commit of nothing known", commit("a", ("t", 99, 5), generation_id_or_member_epoch=4), 9)
    of_member = {"generation_id_or_member_epoch": 4, "member_id": "q"}
    await ask("commit of a generation", commit("a", ("t", 0, 8), **of_member), 9)
    await ask("commit of a member without a generation", commit("a", ("t", 0, 5), member_id="q"), 9)
    await ask("commit of an instance without a generation", commit("a", ("t", 0, 5), group_instance_id="q"), 9)
    for version in (8, 9):
        await ask(f"commit of a new group's generation, v{version}", commit("new", ("t", 0, 5), **of_member), version)
    await ask("commit of nothing", commit("new"), 9)
    await ask("commit by id", commit("a", ("t", 0, 5), topic_id=ids["t"]), 10)
    await ask("commit by unknown id", commit("a", ("t", 0, 5), topic_id=UNKNOWN_ID), 10)
    for version in (8, 9, 10):
        await ask(f"fetch of all, v{version}", fetch("a"), version)
        await ask(f"fetch of all of a group that is not there, v{version}", fetch("none"), version)
    await ask("fetch", fetch("a", ("t", [0, 1, 2, 7]), ("nowhere", [0])), 9)
    await ask("fetch of a group that is not there", fetch("none", ("t", [0])), 9)
    await ask("fetch by id", fetch("a", ("t", [0, 2]), topic_id=ids["t"]), 10)
    await ask("fetch by unknown id", fetch("a", ("t", [0]), topic_id=UNKNOWN_ID), 10)
    await ask("fetch of a member", fetch("a", ("t", [0]), member_id="q", member_epoch=3), 9)
    await ask("fetch of a member of no group", fetch("none", ("t", [0]), member_id="q", member_epoch=3), 9)
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=asking.name("t"), partition_indexes=[0, 5])
    for version in range(1, 8):
        request = OffsetFetchRequest(group_id=asking.name("a"), topics=[topic])
        await ask(f"fetch, v{version}", request, version)
    for version in range(2, 8):
        await ask(
            f"fetch of everything, v{version}", OffsetFetchRequest(group_id=asking.name("a"), topics=None), version
        )
    await ask("delete", asking.delete("a", ("t", 2), ("t", 9), ("nowhere", 0)), 0)
    await ask("fetch after that", fetch("a"), 9)
    await ask("delete of a group that is not there", asking.delete("none", ("t", 2)), 0)
    await ask("delete without a group", asking.delete("", ("t", 2)), 0)


async def _ask_live(asking: Asking) -> None:
    """A classic group with a member that reads topic t."""
    ask, commit, peer = asking.ask, asking.commit, asking.peer
    name = asking.name("t").encode()
    metadata = b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
    join = JoinGroupRequest(
        group_id=asking.name("live"),
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    joined = await peer.request(join, 3)
    asking.forget(joined.member_id)
    of_member = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    await ask("commit before the assignment", commit("live", ("t", 0, 5), **of_member), 9)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"assigned")
    sync = SyncGroupRequest(
        group_id=asking.name("live"),
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[assignment],
    )
    assert (await peer.request(sync, 3)).error_code == 0
    await ask("commit of a member", commit("live", ("t", 0, 5), ("u", 0, 9), **of_member), 9)
    await ask("commit of nobody", commit("live", ("t", 0, 6)), 9)
    late = {**of_member, "generation_id_or_member_epoch": 99}
    await ask("commit of another generation", commit("live", ("t", 0, 6), **late), 9)
    await ask("commit of a stranger", commit("live", ("t", 0, 6), **{**of_member, "member_id": "q"}), 9)
    await ask("commit of a stranger's instance", commit("live", ("t", 0, 6), **of_member, group_instance_id="q"), 9)
    await ask("delete of what is read, and of what is not", asking.delete("live", ("t", 0), ("u", 0)), 0)
    await ask("fetch of the group", asking.fetch("live"), 9)


async def _ask_about_groups(asking: Asking) -> None:
    ask, name = asking.ask, asking.name
    names = [name("live"), name("a"), name("none")]
    for version in range(7):
        await ask(f"describe, v{version}", DescribeGroupsRequest(groups=[*names, ""]), version)
    with_operations = DescribeGroupsRequest(groups=names, include_authorized_operations=True)
    await ask("describe with operations", with_operations, 6)
    await ask("describe as consumer groups", ConsumerGroupDescribeRequest(group_ids=[*names, ""]), 1)
    filters: dict[str, dict[str, list[str]]] = {
        "all": {},
        "stable ones": {"states_filter": ["STABLE "]},
        "empty and dead ones": {"states_filter": ["empty", "Dead"]},
        "of an unknown state": {"states_filter": ["bogus"]},
        "of an unknown type": {"types_filter": ["bogus"]},
        "of the consumer protocol": {"types_filter": ["Consumer"]},
        "classic ones": {"types_filter": ["CLASSIC"]},
    }
    for label, each in filters.items():
        response = await asking.peer.request(ListGroupsRequest(**each), 5)
        mine = [group for group in response.groups if group.group_id.endswith(asking.suffix)]
        asking.answers[f"list {label}"] = [
            response.error_code,
            *sorted([name.removesuffix(asking.suffix), *rest] for name, *rest in map(_listed, mine)),
        ]
    await ask("delete groups", DeleteGroupsRequest(groups_names=[*names, name("a"), name("b")]), 2)
    await ask("leave", LeaveGroupRequest(group_id=name("live"), member_id=asking.member_id), 2)
    await ask("commit after the last one left", asking.commit("live", ("t", 0, 6)), 9)
    await ask("delete the empty group", DeleteGroupsRequest(groups_names=[name("live")]), 2)
    await ask("fetch of the deleted group", asking.fetch("live"), 9)


def _listed(group: Any) -> tuple[str, str, str, str]:
    return group.group_id, group.protocol_type, group.group_state, group.group_type


async def _ask_deleted_topic(asking: Asking) -> None:
    await asking.peer.request(asking.commit("d", ("gone", 0, 1), ("t", 1, 2)), 9)
    await delete_topic(asking.peer, asking.name("gone"))
    for _ in range(100):
        fetched = await asking.peer.request(asking.fetch("d"), 9)
        if len(fetched.groups[0].topics) == 1:
            break
        await asyncio.sleep(0.05)
    for version in (9, 10):
        await asking.ask(f"fetch after a topic was deleted, v{version}", asking.fetch("d"), version)


async def _record(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    peer = Peer(reader, writer)
    answers = await ask_all(peer, f"-{os.urandom(4).hex()}")
    await peer.close()
    lines = [f"{json.dumps(label)}: {json.dumps(answer, sort_keys=True)}" for label, answer in answers.items()]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(_record(int(sys.argv[1])), 60))
