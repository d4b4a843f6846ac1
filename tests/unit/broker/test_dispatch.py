"""From frames to handlers: versions, ApiVersions, and what becomes of failures."""

import asyncio
import logging

import pytest

from tailrace.broker.handlers import api_versions
from tailrace.broker.serving.dispatch import Dispatcher
from tailrace.catalogue import CATALOGUE, Audience
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError
from tailrace.wire.apis import is_declared
from tailrace.wire.apis.admin import DescribeLogDirsRequest
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.transactions import InitProducerIdRequest
from tailrace.wire.compile import decode
from tests.unit.broker.world import batch, create_topic, fetch, fetched, produce, produced, running


@pytest.mark.parametrize("version", range(5))
async def test_what_is_advertised_is_the_table_of_handlers(version):
    async with running() as world:
        peer = await world.connect()
        request = ApiVersionsRequest(client_software_name="a-b.c", client_software_version="1.0")
        response = await peer.request(request, version)
        advertised = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        served = [api for api in CATALOGUE.values() if api.for_clients and not api.only_with]
        assert set(advertised) == {api.key for api in served if api.key.is_advertised}
        assert advertised[1] == (4, 18)
        assert advertised[0] == (0, 13)  # From 0, for librdkafka; 0 to 2 are refused.


def test_whatever_is_served_is_declared():
    own = [api for api in CATALOGUE.values() if api.for_clients and api.key.is_own]
    assert own
    assert not any(api.key.is_advertised for api in own), "clients are told of Kafka's alone"
    assert all(is_declared(api_key) for api_key in CATALOGUE)


@pytest.mark.parametrize("version", [3, 4])
async def test_features_that_may_be_off_are_told_to_clients_that_can_read_them(version):
    async with running() as world:
        peer = await world.connect()
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        response = await peer.request(request, version)
        supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
        finalized = {each.name: each.max_version_level for each in response.finalized_features}
        assert finalized["metadata.version"] == supported["metadata.version"][1]
        assert finalized["kraft.version"] == 1
        assert finalized["transaction.version"] == 2
        assert ("transaction.version" in supported) == (version >= 4)


async def test_api_versions_of_the_future_is_answered_in_version_0():
    async with running() as world:
        peer = await world.connect()
        body = b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x01x\x00" + b"whatever"
        peer.writer.write(len(body).to_bytes(4, "big") + body)
        frame = await peer.receive_frame()
        assert frame[:4] == b"\x00\x00\x00\x07"
        response = decode(ApiVersionsResponse, 0, frame, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [(18, 0, 4)]


async def test_software_names_must_look_like_names():
    async with running() as world:
        peer = await world.connect()
        request = ApiVersionsRequest(client_software_name="a b", client_software_version="1.0")
        assert (await peer.request(request, 3)).error_code == ErrorCode.INVALID_REQUEST


async def test_our_own_bug_is_logged_and_answered(monkeypatch, caplog):
    def fail(*_arguments):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(api_versions, "handle_api_versions", fail)
    async with running() as world:
        peer = await world.connect()
        assert (await peer.request(ApiVersionsRequest(), 0)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        records = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(records) == 1
        assert records[0].exc_info[0] is ZeroDivisionError
        assert records[0].facts["api"] == "ApiVersions"
        assert (await peer.request(MetadataRequest(topics=[]), 9)).error_code == 0


@pytest.mark.parametrize("acks", [1, 0])
async def test_a_failure_is_told_for_each_item_or_closes_the_connection_of_who_asked_for_no_answer(acks, monkeypatch):
    from tailrace.broker.handlers import produce as module

    def fail(*_arguments):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "as a whole")

    monkeypatch.setattr(module, "handle_produce", fail)
    async with running() as world:
        peer = await world.connect()
        request = produce("t", batch(b"a"))
        request.acks = acks
        if acks:
            (topic,) = (await peer.request(request, 9)).responses
            (answer,) = topic.partition_responses
            assert (topic.name, answer.index, answer.error_code) == ("t", 0, ErrorCode.INVALID_REQUEST)
            assert (answer.base_offset, answer.error_message) == (-1, "as a whole")
        else:
            peer.send(request, 9)
            assert await peer.is_closed()


@pytest.mark.parametrize(("version", "method"), [(3, "append_as_leader"), (9, "append_plain")])
async def test_a_broken_promise_below_the_shell_takes_its_partition_offline(version, method, monkeypatch):
    """An assertion of the layers that keep data is not answered away, neither in the general nor in the express way."""
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=2)
        log = world.broker.replicas.find("t", 0).log
        segments = log.files.segments
        monkeypatch.setattr(log, method, lambda *_arguments, **_named: segments.replace([log.active], log.active))
        for _ in range(2):
            answer = produced(await peer.request(produce("t", batch(b"a")), version))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        monkeypatch.undo()
        answer = produced(await peer.request(produce("t", batch(b"a")), version))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR, "until a restart"
        assert fetched(await peer.request(fetch("t", 0), 11)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produced(await peer.request(produce("t", batch(b"a"), partition=1), version)).error_code == 0


async def test_a_broken_promise_that_is_no_partitions_own_stops_the_broker(monkeypatch):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        segments = world.broker.replicas.find("t", 0).log.files.segments
        monkeypatch.setattr(
            world.broker.replicas, "find_to_write", lambda *_arguments: segments.replace([segments.active], None)
        )
        peer.send(produce("t", batch(b"a")), 3)
        with pytest.raises(AssertionError):
            await asyncio.wait_for(world.broker.wait_failed(), 5)


@pytest.mark.parametrize("version", range(7))
async def test_there_is_no_coordinator_while_there_are_too_few_brokers_for_its_topic(version):
    async with running() as world:
        peer = await world.connect()
        request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"] if version >= 4 else [])
        response = await peer.request(request, version)
        answers = response.coordinators if version >= 4 else [response]
        assert [each.error_code for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(answers)
        assert answers[0].node_id == -1


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_are_never_given_twice(version):
    async with running() as world:
        peer = await world.connect()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        given = [await peer.request(request, version) for _ in range(3)]
        assert [(each.error_code, each.producer_epoch) for each in given] == [(0, 0)] * 3
        assert len({each.producer_id for each in given}) == 3
        await world.broker.stop()
        await world.start()
        peer = await world.connect()
        assert (await peer.request(request, version)).producer_id not in {each.producer_id for each in given}


@pytest.mark.parametrize("version", range(1, 6))
async def test_log_dirs_are_described(version):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "a", partitions=2)
        await create_topic(peer, "b")
        await peer.request(produce("a", batch(b"x")), 9)
        response = await peer.request(DescribeLogDirsRequest(topics=None), version)
        (folder,) = response.results
        assert folder.log_dir == "data"
        sizes = {
            (topic.name, each.partition_index): each.partition_size
            for topic in folder.topics
            for each in topic.partitions
        }
        assert sizes == {("a", 0): len(batch(b"x")), ("a", 1): 0, ("b", 0): 0}
        assert (folder.total_bytes > 0) == (version >= 4)
        asked = DescribeLogDirsRequest.DescribableLogDirTopic(topic="a", partitions=[1])
        (folder,) = (await peer.request(DescribeLogDirsRequest(topics=[asked]), version)).results
        assert [topic.name for topic in folder.topics] == ["a"]


@pytest.mark.parametrize("size", range(8))
async def test_a_request_too_short_for_a_header_is_refused(size):
    """A connection refuses it before that; what an Envelope holds may be as short."""
    async with running() as world:
        with pytest.raises(ProtocolError):
            Dispatcher(world.broker.services, Audience.CLIENTS).dispatch(
                memoryview(bytes((0, 3, 0, 9, 0, 0, 0))[:size]), None
            )
