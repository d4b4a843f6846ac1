"""What alerts look at, and what clients push, on /metrics: read strictly, in both formats."""

from __future__ import annotations

import time

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tailrace.controller.image import ResourceType
from tailrace.wire.apis.admin import IncrementalAlterConfigsRequest
from tailrace.wire.apis.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from tests.unit.broker.metrics.web import SETTINGS, scrape
from tests.unit.broker.world import create_topic, running


async def test_clock_disk_and_transactions_are_told() -> None:
    async with running(SETTINGS) as world:
        await create_topic(await world.connect(), "t")
        found = await scrape(world.broker)
        assert abs(found.value("tailrace_clock_seconds") - time.time()) < 60
        (labels,) = [{"logDirectory": path} for path in world.broker.config.log_dirs]
        total = found.value("tailrace_log_dir_total_bytes", **labels)
        assert 0 < found.value("tailrace_log_dir_usable_bytes", **labels) <= total
        assert "tailrace_open_transaction_idle_seconds" in found.names
        assert found.value("kafka_server_replicamanager_partitionswithlatetransactionscount") == 0
        assert "tailrace_loop_lag_recent_seconds" in found.names


async def test_what_clients_push_is_shown_under_names_that_can_be_read() -> None:
    async with running({**SETTINGS, "client.telemetry.receivers": "metrics"}) as world:
        peer = await world.connect()
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ResourceType.CLIENT_METRICS,
            resource_name="all",
            configs=[IncrementalAlterConfigsRequest.AlterableConfig(name="metrics", value="*")],
        )
        await peer.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        data = MetricsData()
        scope = data.resource_metrics.add().scope_metrics.add()
        scope.metrics.add(name="a.b-c").gauge.data_points.add(as_double=1.5)
        # All of these become the same name, or nearly.
        for name in ("n.total", "n_total", "n"):
            scope.metrics.add(name=name).gauge.data_points.add(as_double=2)
        counter = scope.metrics.add(name="n.total")
        counter.sum.is_monotonic, counter.sum.aggregation_temporality = True, 1
        counter.sum.data_points.add(as_int=7)
        point = scope.metrics.add(name='odd"name\n').gauge.data_points.add(as_double=3)
        point.attributes.add(key="why").value.string_value = 'quotes " and \\ and \n ends'
        told = await peer.request(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(range(16))), 0)
        push = PushTelemetryRequest(
            client_instance_id=bytes(range(16)),
            subscription_id=told.subscription_id,
            metrics=data.SerializeToString(),
        )
        assert (await peer.request(push, 0)).error_code == 0
        found = await scrape(world.broker)
        assert found.sum("client_a_b_c", client_id="peer") == 1.5
        assert found.value("tailrace_telemetry_pushes_total") == 1
        assert found.value("tailrace_telemetry_clients") == 1
        assert found.value("tailrace_telemetry_series") == 5
