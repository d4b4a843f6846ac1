"""GetTelemetrySubscriptions and PushTelemetry over the wire: Kafka's rules, codes and bounds."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tailrace.controller.configs import Operation
from tailrace.controller.image import ResourceType
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest, ListConfigResourcesRequest
from tailrace.wire.apis.data import ApiVersionsRequest
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.apis.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from tailrace.wire.compression import Compression, compress
from tests.unit.broker.world import Peer, World, running

ON = {"client.telemetry.receivers": "metrics"}
KEYS = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
NO_ID = bytes(16)
ID = bytes(range(16))


def _metrics(*names: str) -> bytes:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name in names:
        scope.metrics.add(name=name).gauge.data_points.add(as_double=1.5)
    return data.SerializeToString()


async def _versions(peer: Peer, name: str = "apache-kafka-java", version: str = "4.3.0") -> set[int]:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    return {each.api_key for each in (await peer.request(request, 4)).api_keys}


async def _subscribe(peer: Peer, name: str, **settings: str | None) -> tuple[int, str | None]:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key.replace("_", "."),
            config_operation=Operation.DELETE if value is None else Operation.SET,
            value=value,
        )
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ResourceType.CLIENT_METRICS, resource_name=name, configs=configs
    )
    (answer,) = (await peer.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    return answer.error_code, answer.error_message


async def _ask(peer: Peer, instance_id: bytes = ID) -> Any:
    return await peer.request(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


async def _push(peer: Peer, subscription_id: int, data: bytes = b"", **more: Any) -> int:
    more = {"client_instance_id": ID, "compression_type": Compression.ZSTD} | more
    packed = compress(Compression.ZSTD, data) if data and "metrics" not in more else more.pop("metrics", b"")
    request = PushTelemetryRequest(subscription_id=subscription_id, metrics=packed, **more)
    code: int = (await peer.request(request, 0)).error_code
    return code


def _shown(world: World) -> dict[str, dict[str, str]]:
    telemetry = world.broker.services.telemetry
    assert telemetry is not None
    store = telemetry.shown()
    assert store is not None
    return {name: dict(samples[0][0]) for (name, _), samples in store.by_metric().items()}


async def test_without_a_receiver_it_is_neither_advertised_nor_served() -> None:
    async with running() as world:
        peer = await world.connect()
        assert not await _versions(peer) & KEYS
        peer.send(GetTelemetrySubscriptionsRequest(), 0)
        assert await peer.is_closed()


async def test_a_client_is_told_what_is_wanted_of_it_and_what_it_pushes_is_shown() -> None:
    async with running(ON) as world:
        peer = await world.connect()
        assert await _versions(peer) >= KEYS
        await _subscribe(peer, "all", metrics="org.apache.kafka.producer.,x", interval_ms="60000")
        await _subscribe(peer, "java", metrics="y", interval_ms="5000", match="client_software_name=apache.*")
        await _subscribe(peer, "go", metrics="z", interval_ms="100", match="client_software_name=sarama")
        told = await _ask(peer, NO_ID)
        assert told.error_code == 0
        assert told.client_instance_id != NO_ID
        assert sorted(told.requested_metrics) == ["org.apache.kafka.producer.", "x", "y"]
        assert (told.push_interval_ms, told.telemetry_max_bytes, told.delta_temporality) == (5000, 1 << 20, True)
        assert told.accepted_compression_types == [4, 3, 1, 2]
        pushed = await _push(peer, told.subscription_id, _metrics("x.y"), client_instance_id=told.client_instance_id)
        assert pushed == 0
        shown = _shown(world)["x_y"]
        assert (shown["client_id"], shown["client_software_name"]) == ("peer", "apache-kafka-java")


async def test_a_subscription_to_everything_replaces_the_others_and_a_change_makes_a_new_id() -> None:
    async with running(ON) as world:
        peer = await world.connect()
        await _subscribe(peer, "some", metrics="x,y", interval_ms="100")
        first = await _ask(peer)
        # A change is told at once, however soon a client asks again.
        await _subscribe(peer, "all", metrics="*", interval_ms="100")
        second = await _ask(peer)
        assert (second.error_code, second.requested_metrics) == (0, ["*"])
        assert first.subscription_id != second.subscription_id
        assert await _push(peer, first.subscription_id) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert (await _ask(peer)).error_code == 0
        await _subscribe(peer, "all", metrics=None, interval_ms=None)
        third = await _ask(peer)
        assert (third.subscription_id, sorted(third.requested_metrics)) == (first.subscription_id, ["x", "y"])


async def test_who_comes_too_soon_is_throttled() -> None:
    async with running(ON) as world:
        peer = await world.connect()
        await _subscribe(peer, "all", metrics="*")
        told = await _ask(peer)
        assert told.push_interval_ms == 300_000
        assert (await _ask(peer)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await _push(peer, told.subscription_id, _metrics("a")) == 0, "the first push comes when it likes"
        assert await _push(peer, told.subscription_id, _metrics("b")) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await _push(peer, told.subscription_id, _metrics("c"), terminating=True) == 0, "and so does the last"
        assert await _push(peer, told.subscription_id, terminating=True) == ErrorCode.INVALID_REQUEST
        assert set(_shown(world)) == {"a", "c"}


async def test_what_is_wrong_with_a_push_is_told_by_kafkas_codes() -> None:
    async with running({**ON, "telemetry.max.bytes": "1000"}) as world:
        peer = await world.connect()
        await _subscribe(peer, "all", metrics="*", interval_ms="100")
        cases: list[tuple[dict[str, Any], ErrorCode]] = [
            ({"client_instance_id": NO_ID}, ErrorCode.INVALID_REQUEST),
            ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            ({"metrics": bytes(1001)}, ErrorCode.TELEMETRY_TOO_LARGE),
            ({"metrics": compress(Compression.ZSTD, bytes(100_000))}, ErrorCode.TELEMETRY_TOO_LARGE),
            ({"metrics": b"no zstd"}, ErrorCode.INVALID_RECORD),
            ({"metrics": b"\xff\xff", "compression_type": 0}, ErrorCode.INVALID_RECORD),
        ]
        for number, (more, code) in enumerate(cases, 7):
            instance_id = bytes(15) + bytes([number])  # Another client each: nobody comes too soon.
            told = await _ask(peer, instance_id)
            given = {"client_instance_id": instance_id, **more}
            assert await _push(peer, told.subscription_id, **given) == code


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ({"interval_ms": "99"}, ErrorCode.INVALID_REQUEST, "Invalid value 99 for interval.ms, interval must be"),
        ({"interval_ms": "3600001"}, ErrorCode.INVALID_REQUEST, "between 100 and 3600000 (1 hour)"),
        ({"intervals": "1"}, ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: intervals"),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id"),
        ({"match": "host=x"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: host=x"),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id=("),
    ],
)
async def test_subscriptions_that_are_refused(settings: dict[str, str], code: ErrorCode, message: str) -> None:
    async with running() as world:
        told_code, told = await _subscribe(await world.connect(), "s", **settings)
        assert told_code == code
        assert message in (told or "")


async def test_subscriptions_are_listed_described_and_survive_a_restart() -> None:
    async with running(ON) as world:
        peer = await world.connect()
        assert await _subscribe(peer, "", metrics="x") == (
            ErrorCode.INVALID_REQUEST,
            "Subscription name can't be empty",
        )
        await _subscribe(peer, "s", metrics="x", match="client_id=peer,client_source_address=127\\.0\\..*")
        await world.broker.stop()
        await world.start(ON)
        peer = await world.connect()
        listed = (await peer.request(ListConfigResourcesRequest(), 0)).config_resources
        assert [each.resource_name for each in listed] == ["s"]
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=ResourceType.CLIENT_METRICS, resource_name="s"
        )
        (described,) = (await peer.request(DescribeConfigsRequest(resources=[resource]), 4)).results
        assert {each.name: (each.value, each.config_source) for each in described.configs} == {
            "metrics": ("x", 7),
            "interval.ms": ("300000", 5),
            "match": ("client_id=peer,client_source_address=127\\.0\\..*", 7),
        }
        assert (await _ask(peer)).requested_metrics == ["x"]


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    taken: list[tuple[str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append((self.headers["Content-Type"], self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_words: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/metrics", taken
    server.shutdown()
    thread.join()
    server.server_close()


async def test_metrics_are_handed_on_by_otlp_over_http(collector: tuple[str, list[tuple[str, bytes]]]) -> None:
    import asyncio
    from dataclasses import replace

    from tailrace.real.background import RealBackground
    from tailrace.real.web import RealWeb

    endpoint, taken = collector
    background = RealBackground()
    world = World(background=background)
    world.ports = replace(world.ports, web=RealWeb())
    await world.start({"client.telemetry.receivers": "otlp", "client.telemetry.otlp.endpoint": endpoint})
    try:
        peer = await world.connect()
        await _subscribe(peer, "all", metrics="*", interval_ms="100")
        told = await _ask(peer)
        assert await _push(peer, told.subscription_id, _metrics("a.b")) == 0
        async with asyncio.timeout(30):
            while not taken:
                await asyncio.sleep(0.01)
        content_type, body = taken[0]
        request = ExportMetricsServiceRequest.FromString(body)
        assert content_type == "application/x-protobuf"
        attributes = {each.key: each.value.string_value for each in request.resource_metrics[0].resource.attributes}
        assert (attributes["client_id"], attributes["client_source_address"]) == ("peer", "127.0.0.1")
        assert request.resource_metrics[0].scope_metrics[0].metrics[0].name == "a.b"
        await peer.close()
    finally:
        await world.broker.stop()
        background.close()
