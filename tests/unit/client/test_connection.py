"""One connection: order, versions, timeouts, and what is said when it ends."""

import asyncio
import struct

import pytest

from tailrace.client.connection import Address, Connection, ConnectionLimits, open_connection
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.network import RealNetwork
from tailrace.wire.apis.data import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)

from .peer import HANG_UP, SILENCE, Peer


async def connect(peer: Peer, **limits: int) -> Connection:
    return await open_connection(RealNetwork(), peer.address, limits=ConnectionLimits(**limits))


def serving(**versions: tuple[int, int]) -> ApiVersionsResponse:
    keys = {"produce": 0, "fetch": 1, "metadata": 3, "api_versions": 18}
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=keys[name], min_version=low, max_version=high)
            for name, (low, high) in versions.items()
        ]
    )


async def test_pipelined_requests_get_their_own_answers():
    def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(throttle_time_ms=request.timeout_ms)

    async with Peer({ListOffsetsRequest: offsets}) as peer:
        connection = await connect(peer, in_flight_max=8)
        answers = await asyncio.gather(
            *(
                connection.call(ListOffsetsRequest(replica_id=-1, timeout_ms=number), ListOffsetsResponse)
                for number in range(200)
            )
        )
        assert [answer.throttle_time_ms for answer in answers] == list(range(200))
        connection.close()


async def test_large_requests_and_answers_pass_whole():
    names = [str(number) * 10_000 for number in range(100, 200)]

    def metadata(request: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=t.name) for t in request.topics])

    async with Peer({MetadataRequest: metadata}) as peer:
        connection = await connect(peer)
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])
        answers = await asyncio.gather(*(connection.call(request, MetadataResponse) for _ in range(5)))
        for answer in answers:
            assert [topic.name for topic in answer.topics] == names
        connection.close()


async def test_a_request_that_cannot_be_encoded_disturbs_nobody():
    async with Peer() as peer:
        connection = await connect(peer)
        too_long = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x" * 40_000)])
        with pytest.raises(ValueError, match="name"):
            await connection.call(too_long, MetadataResponse)
        assert (await connection.call(MetadataRequest(topics=[]), MetadataResponse)).cluster_id == "c"
        connection.close()


async def test_the_newest_common_version_is_taken():
    async with Peer({ApiVersionsRequest: lambda _: serving(metadata=(0, 7), produce=(3, 40))}) as peer:
        connection = await connect(peer)
        assert connection.version_of(MetadataRequest) == 7
        assert connection.version_of(ProduceRequest) == 13
        assert connection.version_of(ProduceRequest, 12) == 12
        connection.close()


@pytest.mark.parametrize("served", [{}, {"fetch": (0, 3)}, {"fetch": (19, 25)}])
async def test_no_common_version_is_told(served: dict):
    async with Peer({ApiVersionsRequest: lambda _: serving(**served)}) as peer:
        connection = await connect(peer)
        with pytest.raises(KafkaError, match="Fetch") as raised:
            connection.version_of(FetchRequest)
        assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION
        connection.close()


async def test_a_broker_that_is_too_old_for_the_first_question_is_asked_again():
    asked = []

    def api_versions(request: ApiVersionsRequest) -> ApiVersionsResponse | bytes:
        asked.append(request.client_software_name)
        if len(asked) > 1:
            return serving(metadata=(0, 4))
        # Correlation id 0, error 35 and one API, in the form of version 0.
        body = struct.pack(">ihihhh", 0, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 2)
        return struct.pack(">i", len(body)) + body

    async with Peer({ApiVersionsRequest: api_versions}) as peer:
        connection = await connect(peer)
        assert [version for _, version in peer.versions] == [3, 0]
        assert connection.version_of(MetadataRequest) == 4
        connection.close()


async def test_nobody_listens():
    async with Peer() as peer:
        address = peer.address
    with pytest.raises(KafkaError) as raised:
        await open_connection(RealNetwork(), address)
    assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
    assert raised.value.message == (
        f"cannot reach {address}: connection refused; is the broker running? start one with: tailrace up"
    )


async def test_a_host_that_does_not_exist():
    with pytest.raises(KafkaError, match=r"cannot reach nowhere\.invalid:9092: .*check the address"):
        await open_connection(RealNetwork(), Address("nowhere.invalid", 9092))


async def test_no_answer_in_time_ends_the_connection():
    async with Peer({MetadataRequest: lambda _: SILENCE}) as peer:
        connection = await connect(peer)
        calls = [
            asyncio.create_task(connection.call(MetadataRequest(), MetadataResponse, timeout_ms=timeout))
            for timeout in (50, 60_000)
        ]
        for call in calls:
            with pytest.raises(KafkaError, match="no answer to Metadata within 50 ms") as raised:
                await call
            assert raised.value.code.retriable
        assert not connection.is_open
        with pytest.raises(KafkaError, match="no answer"):
            await connection.call(MetadataRequest(), MetadataResponse)


@pytest.mark.parametrize("timeouts", [(60_000, 80), (80, 60_000), (60_000, 80, 40_000)])
async def test_the_shortest_of_several_timeouts_counts(timeouts: tuple[int, ...]):
    async with Peer({MetadataRequest: lambda _: SILENCE}) as peer:
        connection = await connect(peer)
        calls = [connection.call(MetadataRequest(), MetadataResponse, timeout_ms=timeout) for timeout in timeouts]
        async with asyncio.timeout(5):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert ["within 80 ms" in str(outcome) for outcome in outcomes] == [True] * len(timeouts)


async def test_what_was_answered_or_given_up_does_not_time_out():
    scripts = {MetadataRequest: lambda _: SILENCE, ListOffsetsRequest: lambda _: ListOffsetsResponse()}
    async with Peer(scripts) as peer:
        connection = await connect(peer)
        request = ListOffsetsRequest(replica_id=-1)
        await connection.call(request, ListOffsetsResponse, timeout_ms=50)
        given_up = asyncio.ensure_future(connection.call(MetadataRequest(), MetadataResponse, timeout_ms=60))
        await asyncio.sleep(0.01)
        given_up.cancel()
        await asyncio.sleep(0.2)
        assert connection.is_open
        connection.close()


async def test_a_lost_connection_fails_everything_that_waits():
    async with Peer({MetadataRequest: lambda _: SILENCE, ListOffsetsRequest: lambda _: HANG_UP}) as peer:
        connection = await connect(peer)
        first = asyncio.create_task(connection.call(MetadataRequest(), MetadataResponse))
        second = asyncio.create_task(connection.call(ListOffsetsRequest(), ListOffsetsResponse))
        for call in (first, second):
            with pytest.raises(KafkaError, match="the broker closed the connection"):
                await call


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        struct.pack(">i", 2) + b"xx",
        struct.pack(">ii", 4, 77),
        struct.pack(">iih", 6, 0, 0),
    ],
    ids=["http", "tls", "short", "other correlation id", "cut off"],
)
async def test_what_is_not_a_broker(garbage: bytes):
    async with Peer({ApiVersionsRequest: lambda _: garbage}) as peer:
        with pytest.raises(KafkaError, match="is this the port of a broker") as raised:
            await connect(peer)
        assert raised.value.code is ErrorCode.NETWORK_EXCEPTION


async def test_an_answer_over_the_bound_is_not_received():
    answer = struct.pack(">ii", 1_000_001, 1)
    async with Peer({MetadataRequest: lambda _: answer}) as peer:
        connection = await connect(peer, response_bytes_max=1_000_000)
        with pytest.raises(KafkaError, match="claims 1000001 bytes"):
            await connection.call(MetadataRequest(), MetadataResponse)


async def test_an_answer_that_was_not_asked_for():
    extra = struct.pack(">ii", 4, 9)

    def metadata(_request: MetadataRequest) -> bytes:
        return extra + extra

    async with Peer({MetadataRequest: metadata}) as peer:
        connection = await connect(peer)
        with pytest.raises(KafkaError):
            await connection.call(MetadataRequest(), MetadataResponse)
        assert not connection.is_open


async def test_a_cancelled_call_does_not_disturb_the_next():
    async with Peer() as peer:
        connection = await connect(peer)
        cancelled = asyncio.create_task(connection.call(MetadataRequest(topics=[]), MetadataResponse))
        await asyncio.sleep(0)
        cancelled.cancel()
        answer = await connection.call(MetadataRequest(topics=[]), MetadataResponse)
        assert answer.cluster_id == "c"
        assert connection.is_open
        connection.close()


async def test_closing_fails_what_waits():
    async with Peer({MetadataRequest: lambda _: SILENCE}) as peer:
        connection = await connect(peer)
        call = asyncio.create_task(connection.call(MetadataRequest(), MetadataResponse))
        await asyncio.sleep(0.01)
        connection.close()
        with pytest.raises(KafkaError, match="closed on this side"):
            await call
