"""The express lane gives, byte for byte, what the general path gives; and leaves to it whatever it should."""

import errno

import pytest

from tailrace.broker.serving.express import Express
from tailrace.broker.serving.lanes import Lane, prefix_end
from tailrace.model.errors import ErrorCode
from tailrace.replica.partition import Partition
from tailrace.sim.clock import SimClock
from tailrace.wire.apis.data import MetadataRequest, ProduceRequest
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.records import Compression
from tests.unit.broker.world import (
    Peer,
    World,
    batch,
    create_topic,
    delete_topic,
    fetch,
    fetched,
    produce,
    produced,
    running,
)

VERSIONS = range(3, 14)
SIZES = [1, 62, 63, 64, 65, 66, 67, 200, 16_300, 16_320, 16_321, 16_322, 16_323, 70_000]


@pytest.fixture
def count_express(monkeypatch) -> list[int]:
    """How many bytes of requests took the express lane, turn by turn."""
    counts: list[int] = []
    take = Express.take

    def counted(self, buffer, view, position, end):
        reached = take(self, buffer, view, position, end)
        counts.append(reached - position)
        return reached

    monkeypatch.setattr(Express, "take", counted)
    return counts


def requests(topic_ids: dict[str, bytes], version: int) -> list[ProduceRequest]:
    """Plain ones in bursts, with everything in between that must not go the same way."""

    def to(topic: str, records: bytes | None, **fields) -> ProduceRequest:
        return produce(topic, records, topic_id=topic_ids.get(topic, bytes(16)), **fields)

    several = to("a", batch(b"1"))
    several.topic_data[0].partition_data.append(ProduceRequest.PartitionProduceData(index=1, records=batch(b"2")))
    two_topics = to("a", batch(b"1"))
    two_topics.topic_data += to("b", batch(b"2")).topic_data
    return [
        *[to("a", batch(b"x" * size)) for size in SIZES],
        *[to("a", batch(b"p"), partition=number % 3) for number in range(9)],
        to("a", batch(b"x"), partition=7),  # there is no such partition
        *[to("b", batch(b"all"), acks=-1) for _ in range(3)],
        *[to(topic, batch(b"in turn")) for _ in range(3) for topic in ("a", "b")],
        to("a", batch(b"y", b"z" * 50, compression=Compression.LZ4)),
        *[to("a", batch(b"i", producer_id=1, producer_epoch=0, base_sequence=number)) for number in (0, 1, 2, 2, 9, 3)],
        to("a", batch(b"y")),
        to("a", batch(b"cut")[:-1]),
        to("a", b""),
        to("a", None),
        to("a", batch(b"q") + batch(b"r")),
        to("a", batch(b"future", now_ms=1 << 60)),
        to("a", batch(b"x"), acks=5),
        to("a", batch(b"x"), transactional_id="t"),
        several,
        two_topics,
        to("append-time", batch(b"now")),
        to("compacted", batch(b"no key")),
        to("missing", batch(b"x")),
        to("__consumer_offsets", batch(b"x")),
        *[to("a", batch(b"end")) for _ in range(5)],
    ]


async def answers_to_all(version: int) -> tuple[list[bytes], bytes]:
    async with running(clock=SimClock()) as world:
        peer = await world.connect()
        topics = {
            "a": await create_topic(peer, "a", partitions=3),
            "b": await create_topic(peer, "b"),
            "compacted": await create_topic(peer, "compacted", cleanup_policy="compact"),
            "append-time": await create_topic(peer, "append-time", message_timestamp_type="LogAppendTime"),
        }
        asked = requests(topics, version)
        for request in asked:
            peer.send(request, version)
        answers = [await peer.receive_frame() for _ in asked]
        logs = [world.broker.replicas.find(name, index).log for name, index in [("a", 0), ("a", 1), ("a", 2), ("b", 0)]]
        return answers, b"".join(log.active.file.read(0, log.size_bytes) for log in logs)


@pytest.mark.parametrize("version", VERSIONS)
async def test_both_ways_give_the_same_bytes(version, monkeypatch, count_express):
    express, express_logs = await answers_to_all(version)
    assert (sum(count_express) > 0) == (version >= 7)
    monkeypatch.setattr(Express, "take", lambda self, buffer, view, position, end: position)
    general, general_logs = await answers_to_all(version)
    assert len(express) == len(general)
    for number, (one, other) in enumerate(zip(express, general, strict=True)):
        assert one == other, f"answer {number}"
    # Offsets and leader epochs are stamped alike too.
    assert express_logs == general_logs


@pytest.mark.parametrize("version", [7, 9, 10, 13])
async def test_a_burst_is_one_write_for_each_partition(version, count_express, monkeypatch):
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "t", partitions=2)
        writes = []
        file_type = type(world.broker.replicas.find("t", 0).log.active.file)
        append = file_type.append
        monkeypatch.setattr(file_type, "append", lambda self, views: (writes.append(len(views)), append(self, views)))
        burst = b"".join(
            peer.frame(produce("t", batch(b"x"), partition=number % 2, topic_id=topic_id), version)
            for number in range(100)
        )
        peer.writer.write(burst)
        answers = [produced(await peer.receive()) for _ in range(100)]
        assert [answer.base_offset for answer in answers] == [number // 2 for number in range(100)]
        assert writes == [50, 50]
        assert max(count_express) == len(burst)


def tagged(peer: Peer, request: ProduceRequest, version: int) -> bytes:
    """With an unknown tagged field at the end of the request, which every reader has to skip."""
    frame = peer.frame(request, version)
    assert frame[-1] == 0
    body = frame[4:-1] + b"\x01\x63\x02hi"
    return len(body).to_bytes(4, "big") + body


async def test_unknown_tags_and_odd_frames_take_the_general_way():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        for _ in range(3):
            peer.send(produce("t", batch(b"x")), 9)
            peer.writer.write(tagged(peer, produce("t", batch(b"x")), 9))
        assert [produced(await peer.receive()).base_offset for _ in range(6)] == list(range(6))
        # A frame that begins like the others but says that it is shorter than its own beginning.
        frame = bytearray(peer.frame(produce("t", batch(b"x")), 9))
        frame[:4] = (30).to_bytes(4, "big")
        peer.writer.write(bytes(frame))
        assert await peer.is_closed()


async def test_lengths_that_lie_are_refused():
    async with running() as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(peer, "t")
        good = produce("t", batch(b"x" * 40))
        assert produced(await peer.request(good, 7)).base_offset == 0
        frame = bytearray(peer.frame(good, 7))
        position = frame.rindex(batch(b"x" * 40)) - 4
        frame[position : position + 4] = (10_000).to_bytes(4, "big")
        peer.writer.write(bytes(frame))
        assert await peer.is_closed()
        assert produced(await other.request(good, 7)).base_offset == 1


async def test_a_full_disk_is_told_to_each_request_of_the_burst():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=2)
        assert produced(await peer.request(produce("t", batch(b"x")), 9)).base_offset == 0
        world.disk.fail("append", "*t-0*", error=errno.ENOSPC)
        for number in range(6):
            peer.send(produce("t", batch(b"x"), partition=number % 2), 9)
        answers = [produced(await peer.receive()) for _ in range(6)]
        assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, 0] * 3
        assert answers[0].error_message
        assert [answer.base_offset for answer in answers[1::2]] == [0, 1, 2]
        world.disk.heal()
        assert produced(await peer.request(produce("t", batch(b"x")), 9)).base_offset == 1


async def test_a_lane_does_not_outlive_its_topic():
    async with running() as world:
        peer, admin = await world.connect(), await world.connect()
        await create_topic(admin, "t")
        assert produced(await peer.request(produce("t", batch(b"x")), 9)).base_offset == 0
        await delete_topic(admin, "t")
        answer = produced(await peer.request(produce("t", batch(b"x")), 9))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await create_topic(admin, "t")
        assert produced(await peer.request(produce("t", batch(b"x")), 9)).base_offset == 0
        records = fetched(await admin.request(fetch("t", 0), 11)).records
        assert len(records) == len(batch(b"x"))


async def test_a_parked_fetch_sees_what_came_by_the_express_lane():
    async with running() as world:
        consumer, producer = await world.connect(), await world.connect()
        await create_topic(producer, "t")
        consumer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        await producer.request(MetadataRequest(topics=[]), 9)
        for _ in range(3):
            producer.send(produce("t", batch(b"x")), 9)
        for _ in range(3):
            await producer.receive()
        assert fetched(await consumer.receive()).records


@pytest.fixture
def learned(monkeypatch) -> list[int]:
    """The versions of the requests that a lane was learned from, or looked for in vain."""
    versions: list[int] = []
    learn = Express._learn
    monkeypatch.setattr(
        Express, "_learn", lambda self, frame, version: (versions.append(version), learn(self, frame, version))[1]
    )
    return versions


def lanes_of(world: World) -> dict[tuple[int, bytes], Lane]:
    express = next(iter(world.broker.acceptors[0].connections))._express
    return express._lanes


async def test_a_client_that_never_repeats_itself_stops_being_learned_from(monkeypatch):
    monkeypatch.setattr("tailrace.broker.serving.express._CREDIT_MAX", 16)
    async with running() as world:
        peer = await world.connect()
        for number in range(60):
            await create_topic(peer, f"t{number}", flush_messages="1")
        for number in range(60):
            assert produced(await peer.request(produce(f"t{number}", batch(b"x")), 9)).error_code == 0
        express = next(iter(world.broker.acceptors[0].connections))._express
        assert express._credit == 0
        assert len(express._lanes) == 16


@pytest.mark.parametrize("version", [7, 8, 9, 12, 13])
async def test_many_topics_are_each_learned_once(version, learned, count_express):
    names = [f"t{number}" for number in range(40)] + ["n" * size for size in (1, 126, 127, 128, 249)]
    async with running() as world:
        peer = await world.connect()
        ids = {name: await create_topic(peer, name) for name in names}
        burst = [produce(name, batch(b"x"), topic_id=ids[name]) for _ in range(3) for name in names]
        frames = [peer.frame(request, version) for request in burst]
        peer.writer.write(b"".join(frames))
        answers = [produced(await peer.receive()) for _ in frames]
        assert [answer.base_offset for answer in answers] == [number // len(names) for number in range(len(frames))]
        assert learned == [version] * len(names)
        assert sum(count_express) == sum(map(len, frames))
        assert [lane.topic for lane in lanes_of(world).values()] == names


@pytest.mark.parametrize("version", [8, 9, 13])
async def test_a_run_goes_over_topics_as_long_as_acks_and_timeout_are_the_same(version, monkeypatch):
    writes: list[tuple[str, int]] = []
    append = Partition.append_plain

    def counted(self, batches):
        writes.append((self.topic_partition.topic, len(batches)))
        return append(self, batches)

    monkeypatch.setattr(Partition, "append_plain", counted)
    async with running() as world:
        peer = await world.connect()
        ids = {name: await create_topic(peer, name) for name in "abc"}

        async def send(*requests: tuple[str, int, int]) -> list[int]:
            frames = [
                peer.frame(produce(name, batch(b"x"), acks=acks, timeout_ms=timeout_ms, topic_id=ids[name]), version)
                for name, acks, timeout_ms in requests
            ]
            writes.clear()
            peer.writer.write(b"".join(frames))
            return [produced(await peer.receive()).base_offset for _ in frames]

        for acks, timeout_ms in ((1, 5000), (-1, 5000), (1, 6000)):
            for name in "abc":
                await send((name, acks, timeout_ms))
        assert await send(*[(name, 1, 5000) for _ in range(5) for name in "cab"]) == [3 + n // 3 for n in range(15)]
        assert writes == [("c", 5), ("a", 5), ("b", 5)]
        assert await send(("a", 1, 5000), ("b", -1, 5000), ("a", -1, 5000), ("a", 1, 6000)) == [8, 8, 9, 10]
        assert writes == [("a", 1), ("b", 1), ("a", 1), ("a", 1)]


async def test_above_a_number_of_lanes_the_first_is_forgotten(monkeypatch, learned):
    monkeypatch.setattr("tailrace.broker.serving.express._LANES_MAX", 3)
    async with running() as world:
        peer = await world.connect()
        for name in "abcd":
            await create_topic(peer, name)
        for number, name in enumerate("abcdbbdca"):
            answer = produced(await peer.request(produce(name, batch(b"x")), 9))
            assert (answer.error_code, answer.base_offset) == (0, "abcdbbdca"[:number].count(name))
        assert len(learned) == 5
        assert [lane.topic for lane in lanes_of(world).values()] == ["c", "d", "a"]


@pytest.mark.parametrize(("client_id", "is_learned"), [(None, True), ("", True), ("c" * 400, True), ("c" * 600, False)])
@pytest.mark.parametrize("version", [8, 9, 13])
async def test_prefixes_of_any_length_within_a_bound(client_id, is_learned, version):
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "t")
        for number in range(3):
            request = produce("t", batch(b"x"), topic_id=topic_id)
            parts = encode_request(request.api_key, version, number, client_id, request)
            peer.writer.write(b"".join(bytes(part) for part in parts))
            _, response = decode_response(request.api_key, version, await peer.receive_frame())
            assert produced(response).base_offset == number
        assert len(lanes_of(world)) == is_learned


@pytest.mark.parametrize("version", [7, 9, 13])
def test_a_prefix_that_is_cut_off_is_none(version):
    request = produce("t", batch(b"x"))
    frame = bytearray(b"".join(bytes(part) for part in encode_request(0, version, 1, "peer", request)))
    end = prefix_end(frame, version, 12)
    assert end > 12
    assert {prefix_end(frame[:size], version, 12) for size in range(12, 30)} <= {12, end}
    frame[12:14] = b"\x7f\xff"  # The client id is longer than the buffer.
    assert prefix_end(frame, version, 12) == 12
