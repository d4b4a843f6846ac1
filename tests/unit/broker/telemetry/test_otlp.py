"""OTLP as opentelemetry's own classes write it, and what is no OTLP at all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tailrace.broker.telemetry.forwarding import _with_client
from tailrace.broker.telemetry.otlp import Point, read_points
from tailrace.broker.telemetry.series import SeriesStore
from tailrace.controller.telemetry.subscriptions import Client

ANN = Client("instance-1", "ann", "apache-kafka-java", "4.3.0", "10.0.0.7", "5000")
BOB = ANN._replace(client_instance_id="instance-2", client_id="bob")


def _metrics() -> MetricsData:
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="group_id").value.string_value = "g"
    resource.resource.attributes.add(key="member").value.int_value = -7
    scope = resource.scope_metrics.add()
    scope.scope.name = "a scope"
    gauge = scope.metrics.add(name="org.apache.kafka.producer.rate", unit="1/s", description="how often")
    point = gauge.gauge.data_points.add(as_double=2.5, time_unix_nano=5)
    point.attributes.add(key="node-id").value.string_value = "1"
    counter = scope.metrics.add(name="org.apache.kafka.producer.total")
    counter.sum.is_monotonic = True
    counter.sum.aggregation_temporality = 1
    counter.sum.data_points.add(as_int=-3, start_time_unix_nano=1, time_unix_nano=5)
    histogram = scope.metrics.add(name="latency")
    histogram.histogram.aggregation_temporality = 2
    bucketed = histogram.histogram.data_points.add(count=4, sum=10.5, bucket_counts=[1, 3], explicit_bounds=[2.0])
    bucketed.attributes.add(key="ok").value.bool_value = True
    scope.metrics.add(name="unused").summary.data_points.add(count=1)
    return data


def test_points_are_what_was_written() -> None:
    labels = (("group_id", "g"), ("member", "-7"))
    assert list(read_points(_metrics().SerializeToString())) == [
        Point("org.apache.kafka.producer.rate", (*labels, ("node-id", "1")), 2.5, is_counter=False, is_delta=False),
        Point("org.apache.kafka.producer.total", labels, -3, is_counter=True, is_delta=True),
        Point("latency.count", (*labels, ("ok", "true")), 4, is_counter=True, is_delta=False),
        Point("latency.sum", (*labels, ("ok", "true")), 10.5, is_counter=True, is_delta=False),
    ]


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        list(read_points(data))
    except ValueError:
        return


def test_what_is_cut_off_is_refused_or_shorter() -> None:
    whole = _metrics().SerializeToString()
    for end in range(1, len(whole)):
        with pytest.raises(ValueError, match=r"left|ends within"):
            list(read_points(whole[:end]))


def test_who_the_client_is_becomes_part_of_each_resource() -> None:
    data = _metrics()
    data.resource_metrics.add().scope_metrics.add().metrics.add(name="other")
    told = MetricsData.FromString(_with_client(data.SerializeToString(), ANN))
    assert len(told.resource_metrics) == 2
    for resource in told.resource_metrics:
        attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert attributes["client_id"] == "ann"
        assert attributes["client_software_version"] == "4.3.0"
    assert [each.key for each in told.resource_metrics[0].resource.attributes][:2] == ["group_id", "member"]
    assert told.resource_metrics[0].scope_metrics[0].metrics[0].name.endswith("rate")


def _add(store: SeriesStore, client: Client, *points: Point) -> None:
    for _ in store.add(client.client_instance_id.encode(), client, points):
        pass


def _gauge(name: str, value: float = 1.0, **labels: str) -> Point:
    return Point(name, tuple(labels.items()), value, is_counter=False, is_delta=False)


def test_series_are_bounded_for_one_and_for_all_and_go_with_their_client() -> None:
    store = SeriesStore(series_max=5, series_per_client_max=3)
    _add(store, ANN, *(_gauge(f"a{number}") for number in range(10)))
    assert (store.count, store.left_out) == (3, 7)
    _add(store, BOB, *(_gauge(f"b{number}") for number in range(10)))
    assert (store.count, store.left_out) == (5, 15)
    store.remove(b"instance-1")
    assert store.count == 2
    _add(store, BOB, _gauge("b9"))
    assert store.count == 3


def test_deltas_are_added_up_and_gauges_replaced() -> None:
    store = SeriesStore(series_max=5, series_per_client_max=5)
    for _ in range(3):
        _add(
            store, ANN, Point("n", (), 2.0, is_counter=True, is_delta=True), _gauge("g", 7.0), _gauge("g", float("nan"))
        )
    assert {name: samples[0][1] for (name, _), samples in store.by_metric().items()} == {"n": 6.0, "g": 7.0}


def test_names_are_those_that_prometheus_takes_and_nobody_passes_for_another() -> None:
    store = SeriesStore(series_max=5, series_per_client_max=5)
    _add(store, ANN, _gauge("1 a.b{" + "x" * 300, **{"node-id": "1", "client_id": "bob", "9": "y" * 300}))
    (((name, _), ((labels, _),)),) = store.by_metric().items()
    assert name.startswith("_1_a_b_x")
    assert len(name) <= 201
    assert dict(labels)["client_id"] == "ann"
    assert [key for key, _ in labels].count("client_id") == 1
    assert len(dict(labels)["_9"]) == 200
