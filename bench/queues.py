"""`python -m bench.queues`: what records of a share group cost the broker, in its own CPU.

acknowledgements   each of one record, in a request of its own, sent without waiting for the one before
emptied            500 records a fetch, accepted by the next one: as they are, and with share.key.order
"""

from __future__ import annotations

import argparse
import statistics
import struct
import sys
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench.coordinator import Connection
from bench.machine import commit, machine
from bench.subject import Subject, running
from tailrace.wire.apis.shares import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from tailrace.wire.frame import decode_response, encode_request

_MEMBERS = 10
# Together they hold as much as a window has room for.
_HELD_EACH = 200
_FETCHED = 500
_KEYS = 5_000
_VALUE = bytes(1_000)
_ACCEPT = 1
_VERSION = 2
_DEADLINE_S = 120.0
_SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.assignment.interval.ms": "0",
}
_serial = count()


class Member:
    def __init__(self, port: int, group: str, topic: str) -> None:
        self._named: dict[str, Any] = {"group_id": group, "member_id": f"member-{next(_serial)}"}
        self._connection = Connection(port)
        self._connection.find_coordinator(group)
        self._epoch = 0
        self._topic_id = b""
        beat = ShareGroupHeartbeatRequest(member_epoch=0, subscribed_topic_names=[topic], **self._named)
        deadline = time.monotonic() + _DEADLINE_S
        while not self._topic_id:
            assert time.monotonic() < deadline, "no partition is assigned"
            answer = self._connection.ask(beat, 1)
            if answer.assignment is not None and answer.assignment.topic_partitions:
                self._topic_id = answer.assignment.topic_partitions[0].topic_id

    def fetch(self, accepted: Sequence[range], *, records_max: int, is_strict: bool) -> list[range]:
        """Accepts these, and gives the next ones."""
        request = ShareFetchRequest
        told = [
            request.AcknowledgementBatch(first_offset=each[0], last_offset=each[-1], acknowledge_types=[_ACCEPT])
            for each in accepted
        ]
        partition = request.FetchPartition(partition_index=0, acknowledgement_batches=told)
        asked = request(
            share_session_epoch=self._epoch,
            max_wait_ms=100,
            min_bytes=1,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=int(is_strict),
            topics=[request.FetchTopic(topic_id=self._topic_id, partitions=[partition])],
            **self._named,
        )
        self._epoch += 1
        answer = self._connection.ask(asked, _VERSION)
        parts = [each for topic in answer.responses for each in topic.partitions]
        assert not answer.error_code, answer
        assert not any(each.error_code or each.acknowledge_error_code for each in parts), parts
        return [range(one.first_offset, one.last_offset + 1) for each in parts for one in each.acquired_records]

    def acknowledgements(self, held: Sequence[range]) -> bytes:
        """A request for each record, behind each other."""
        request = ShareAcknowledgeRequest
        frames: list[bytes] = []
        for offset in (offset for each in held for offset in each):
            told = request.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[_ACCEPT])
            partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=[told])
            topics = [request.AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])]
            asked = request(share_session_epoch=self._epoch, topics=topics, **self._named)
            self._epoch += 1
            frames += (bytes(part) for part in encode_request(asked.api_key, _VERSION, 1, "bench", asked))
        return b"".join(frames)

    def send(self, frames: bytes) -> None:
        self._connection.send(frames)

    def receive(self, number: int) -> list[bytes]:
        return [self._connection.receive() for _ in range(number)]


def acknowledged(subject: Subject, seconds: float) -> tuple[float, float]:
    """Acknowledgements a second, and for each second of the broker's CPU."""
    members = _members(subject, _written(subject, 200_000), {})
    total, spent_s, cpu_s, answers = 0, 0.0, 0.0, list[bytes]()
    while spent_s < seconds:
        held = [each.fetch((), records_max=_HELD_EACH, is_strict=True) for each in members]
        counts = [sum(map(len, each)) for each in held]
        if not any(counts):
            break
        frames = [member.acknowledgements(each) for member, each in zip(members, held, strict=True)]
        began_s, cpu_began_s = time.perf_counter(), subject.cpu_s()
        for member, sent in zip(members, frames, strict=True):
            member.send(sent)
        for member, number in zip(members, counts, strict=True):
            answers += member.receive(number)
        spent_s += time.perf_counter() - began_s
        cpu_s += subject.cpu_s() - cpu_began_s
        total += sum(counts)
        for answer in answers:
            _, told = decode_response(ShareAcknowledgeResponse.api_key, _VERSION, answer)
            assert told.responses[0].partitions[0].error_code == 0, told
        answers.clear()
    return total / spent_s, total / cpu_s


def emptied(subject: Subject, records: int, settings: dict[str, str]) -> float:
    """Microseconds of the broker's CPU for each record."""
    members = _members(subject, _written(subject, records), settings)
    held: dict[Member, list[range]] = {each: [] for each in members}
    left, cpu_began_s = records, subject.cpu_s()
    while left:
        for member in members:
            held[member] = member.fetch(held[member], records_max=_FETCHED, is_strict=False)
            left -= sum(map(len, held[member]))
    return (subject.cpu_s() - cpu_began_s) / records * 1e6


def _members(subject: Subject, topic: str, settings: dict[str, str]) -> list[Member]:
    group = f"workers-{next(_serial)}"
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in {"share.auto.offset.reset": "earliest", **settings}.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": subject.bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(_DEADLINE_S)
    return [Member(subject.port, group, topic) for _ in range(_MEMBERS)]


def _written(subject: Subject, records: int) -> str:
    topic = subject.create_topic(f"jobs-{next(_serial)}", warm=False)
    producer = Producer({"bootstrap.servers": subject.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 10**6})
    for number in range(records):
        producer.produce(topic, _VALUE, struct.pack(">i", number % _KEYS))
        if not number % 1000:
            producer.poll(0)
    assert producer.flush(_DEADLINE_S) == 0
    return topic


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.queues", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of acknowledgements, in each round")
    parser.add_argument("--records", type=int, default=100_000, help="in a queue that is emptied")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{commit()} on {machine()}")
    rates: list[tuple[float, float]] = []
    costs: dict[str, list[float]] = {"as they are": [], "share.key.order": []}
    with running(settings=_SETTINGS) as subject:
        for _ in range(options.rounds):
            rates.append(acknowledged(subject, options.seconds))
            for name, each in costs.items():
                ordered = {"share.key.order": "true"} if name != "as they are" else {}
                each.append(emptied(subject, options.records, ordered))
    print(f"acknowledgements of one record: {statistics.median(rate for rate, _ in rates):,.0f} a second, "
          f"{statistics.median(rate for _, rate in rates):,.0f} a core")  # fmt: skip
    for name, each in costs.items():
        print(f"emptied, {name}: {statistics.median(each):.2f} us of the broker's CPU for a record")
    return 0


if __name__ == "__main__":
    sys.exit(main())
