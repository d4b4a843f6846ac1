"""Clients that are asked for their metrics: which ones, how often, and what is taken of what they push.

What is known of a client is kept while it comes, and forgotten three intervals after it came last. A client may move
from broker to broker, each of which keeps it anew. No more than CLIENTS_MAX are kept, as in Kafka; who has not come for
longest goes first. The software of a connection is what its ApiVersions has told.
"""

from __future__ import annotations

from asyncio import sleep
from collections import OrderedDict
from typing import TYPE_CHECKING

from tailrace.broker.telemetry.instances import Instance
from tailrace.broker.telemetry.otlp import Point, read_points
from tailrace.broker.telemetry.series import SeriesStore
from tailrace.controller.image import MetadataImage, ResourceType
from tailrace.controller.telemetry.subscriptions import Client, Subscription, decide_wanted, parse_subscription
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid, uuid_text
from tailrace.wire.compression import Compression, decompress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailrace.broker.telemetry.forwarding import OtlpForwarding
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Ports
    from tailrace.wire.apis.telemetry import PushTelemetryRequest

_log = events.logger("telemetry")

CLIENTS_MAX = 16_384
# Between two turns of the loop.
_SLICE_MS = 0.5
_POINTS_PER_LOOK = 16


class Telemetry:
    def __init__(self, config: BrokerConfig, ports: Ports) -> None:
        self.max_bytes = config.telemetry_max_bytes
        self._ports = ports
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()  # Who came last is last.
        self._software: OrderedDict[str, tuple[str, str]] = OrderedDict()  # By `host:port`; at most CLIENTS_MAX.
        self.series: SeriesStore | None = None
        self.forwarding: OtlpForwarding | None = None
        self.pushes = self.refused = 0
        if "metrics" in config.client_telemetry_receivers:
            self.series = SeriesStore(
                series_max=config.client_telemetry_max_series,
                series_per_client_max=config.client_telemetry_max_series_per_client,
            )
        if "otlp" in config.client_telemetry_receivers:
            self.forwarding = _make_forwarding(config, ports)

    def __len__(self) -> int:
        return len(self._instances)

    def follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.configs is new.configs:
            return
        names = {name for kind, name in (*old.configs, *new.configs) if kind == ResourceType.CLIENT_METRICS}
        for name in names:
            texts = new.config(ResourceType.CLIENT_METRICS, name)
            if old.config(ResourceType.CLIENT_METRICS, name) == texts and (name in self._subscriptions or not texts):
                continue
            self._subscriptions.pop(name, None)
            self._version += 1
            try:
                if texts:
                    self._subscriptions[name] = parse_subscription(texts)
            except KafkaError as error:  # Another version may have taken it.
                _log.warning("a subscription to clients' metrics is left out", name=name, cause=error.message)

    def note_software(self, peer: str, name: str, version: str) -> None:
        self._software[peer] = name, version
        if len(self._software) > CLIENTS_MAX:
            self._software.popitem(last=False)

    def shown(self) -> SeriesStore | None:
        """What the clients that still come have told."""
        self._forget(self._ports.clock.monotonic_ms(), len(self._instances))
        return self.series

    # ---- requests

    def subscribe(self, instance_id: bytes, client_id: str | None, peer: str) -> Instance:
        """What is wanted of a client. Raises KafkaError if it comes too soon."""
        now_ms = self._ports.clock.monotonic_ms()
        instance = self._find(instance_id, client_id, peer, now_ms)
        if not instance.may_ask(now_ms):
            raise _too_soon(instance)
        instance.last_error = ErrorCode.NONE
        return instance

    async def push(self, request: PushTelemetryRequest, client_id: str | None, peer: str) -> None:
        """Raises KafkaError."""
        now_ms = self._ports.clock.monotonic_ms()
        instance = self._find(request.client_instance_id, client_id, peer, now_ms)
        try:
            self._check(request, instance, now_ms)
            instance.is_terminating = request.terminating
            if request.metrics:
                await self._take(request, instance)
            self.pushes += 1
            instance.last_error = ErrorCode.NONE
        except KafkaError as error:
            self.refused += 1
            instance.is_terminating = request.terminating
            instance.last_error = error.code
            raise

    def _check(self, request: PushTelemetryRequest, instance: Instance, now_ms: float) -> None:
        name = instance.client.client_instance_id
        if instance.is_terminating:
            reason = f"Client [{name}] has said that it ends: nothing is taken from it any more"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        if not instance.may_push(now_ms) and not request.terminating:
            raise _too_soon(instance)
        if request.subscription_id != instance.wanted.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"Unknown client subscription id for [{name}]")
        if request.compression_type not in list(Compression):
            reason = f"Unknown compression type [{request.compression_type}] in telemetry of [{name}]"
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, reason)
        if len(request.metrics) > self.max_bytes:
            reason = f"Telemetry of [{name}] is larger than telemetry.max.bytes, {self.max_bytes}"
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, reason)

    async def _take(self, request: PushTelemetryRequest, instance: Instance) -> None:
        codec, packed = Compression(request.compression_type), bytes(request.metrics)
        try:
            data = await self._ports.background.run(lambda: decompress(codec, packed, self.max_bytes))
        except KafkaError as error:
            is_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
            code = ErrorCode.TELEMETRY_TOO_LARGE if is_large else ErrorCode.INVALID_RECORD
            raise KafkaError(code, error.message) from error
        try:
            await self._read(bytes(request.client_instance_id), instance.client, read_points(data))
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"These metrics are no OTLP: {error}") from error
        if self.forwarding is not None:
            self.forwarding.put(data, instance.client)

    async def _read(self, instance_id: bytes, client: Client, points: Iterable[Point]) -> None:
        """All of it, in slices of half a millisecond; also where only somebody else wants it, to know what it is."""
        clock = self._ports.clock
        ends_ms = clock.monotonic_ms() + _SLICE_MS
        steps = points if self.series is None else self.series.add(instance_id, client, points)
        for number, _ in enumerate(steps):
            if number % _POINTS_PER_LOOK == 0 and clock.monotonic_ms() >= ends_ms:
                await sleep(0)
                ends_ms = clock.monotonic_ms() + _SLICE_MS

    # ---- clients

    def _find(self, instance_id: bytes, client_id: str | None, peer: str, now_ms: float) -> Instance:
        key = bytes(instance_id)
        self._forget(now_ms)
        instance = self._instances.get(key)
        if instance is None:
            instance = self._instances[key] = self._make(key, self._client(key, client_id, peer), now_ms)
        elif instance.version != self._version:
            instance = self._instances[key] = self._make(key, instance.client, now_ms)
        instance.seen_ms = now_ms
        self._instances.move_to_end(key)
        return instance

    def _make(self, instance_id: bytes, client: Client, now_ms: float) -> Instance:
        wanted = decide_wanted(self._subscriptions.values(), client, instance_id)
        return Instance(client, wanted, self._version, now_ms)

    def _client(self, instance_id: bytes, client_id: str | None, peer: str) -> Client:
        address, _, port = peer.rpartition(":")
        software = self._software.get(peer, ("unknown", "unknown"))
        return Client(uuid_text(Uuid(instance_id)), client_id or "", *software, address.strip("[]"), port)

    def _forget(self, now_ms: float, count: int = 2) -> None:
        """Of those that have not come for longest, a few at a time."""
        for key in self._oldest(count):
            if len(self._instances) > CLIENTS_MAX or self._instances[key].expires_ms() < now_ms:
                del self._instances[key]
                if self.series is not None:
                    self.series.remove(key)

    def _oldest(self, count: int) -> list[bytes]:
        return [key for key, _ in zip(self._instances, range(count), strict=False)]


def _too_soon(instance: Instance) -> KafkaError:
    name = instance.client.client_instance_id
    reason = f"Request from the client [{name}] arrived before the next push interval time"
    return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, reason)


def _make_forwarding(config: BrokerConfig, ports: Ports) -> OtlpForwarding:
    from tailrace.broker.telemetry.forwarding import OtlpForwarding

    endpoint = config.client_telemetry_otlp_endpoint
    if not endpoint.startswith(("http://", "https://")):
        reason = (
            f"client.telemetry.otlp.endpoint is {endpoint!r}: the receiver `otlp` needs an address of http or https, "
            "such as http://collector:4318/v1/metrics"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    assert ports.web is not None, "this world has no web"
    return OtlpForwarding(
        endpoint,
        ports.web,
        ports.background,
        ports.clock,
        queued_max_bytes=config.client_telemetry_otlp_max_queued_bytes,
    )
