"""What is seen at a glance, from two readings of a cluster's nodes."""

from __future__ import annotations

from tailrace.apps.scrape import Moment, Reading, parse_text
from tailrace.apps.top.overview import overview

TOPICS = "kafka_server_brokertopicmetrics"
REPLICAS = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
TIME = "kafka_network_requestmetrics_totaltimems"


def node(instance: str, at: float, *lines: str) -> Reading:
    return Reading(instance, Moment(at, 0.0), parse_text("\n".join(lines)))


def test_rates_are_of_the_time_between_the_readings():
    before = node(
        "one",
        10,
        f"{TOPICS}_messagesin_total 100",
        f'{TOPICS}_messagesin_total{{topic="a"}} 100',
        'tailrace_partition_bytes_in_total{topic="a",partition="0"} 1000',
        'kafka_network_requestmetrics_requests_total{request="Fetch",version="16"} 5',
    )
    now = node(
        "one",
        14,
        'tailrace_build_info{version="1",node="7",cluster="c"} 1',
        f"{TOPICS}_messagesin_total 140",
        f'{TOPICS}_messagesin_total{{topic="a"}} 140',
        'tailrace_partition_bytes_in_total{topic="a",partition="0"} 1400',
        'kafka_network_requestmetrics_requests_total{request="Fetch",version="16"} 7',
        'kafka_network_requestmetrics_requests_total{request="Produce",version="9"} 6',
        "tailrace_loop_lag_seconds 0.004",
    )
    told = overview([before], [now])
    (seen,) = told.nodes
    assert (seen.node, seen.records_in, seen.requests, seen.loop_lag_ms) == ("7", 10, 2, 4)
    assert told.records_in == 10, "topics are not counted a second time"
    assert [(each.name, each.values) for each in told.hot_partitions] == [("a-0", {"bytes_in": 100})]


def test_a_node_that_began_anew_or_is_new_has_no_rate():
    before = [node("one", 10, f"{TOPICS}_messagesin_total 100")]
    now = [node("one", 12, f"{TOPICS}_messagesin_total 4"), node("two", 12, f"{TOPICS}_messagesin_total 900")]
    assert [each.records_in for each in overview(before, now).nodes] == [0, 0]
    assert overview(before, before).records_in == 0, "no time has passed"


def test_a_node_that_does_not_answer_is_shown_with_the_reason():
    told = overview([node("one", 1)], [Reading("one", Moment(2, 0.0), None, "refused")])
    assert [(each.is_up, each.problem) for each in told.nodes] == [(False, "refused")]
    assert told.controllers == 0


def test_what_is_wrong_is_added_up_where_each_tells_its_own_and_not_where_all_tell_the_same():
    lines = (
        f"{REPLICAS}_underreplicatedpartitions 2",
        f"{REPLICAS}_underminisrpartitioncount 1",
        f"{CONTROLLER}_offlinepartitionscount 3",
        f"{CONTROLLER}_globaltopiccount 5",
        f"{CONTROLLER}_activecontrollercount 1",
    )
    other = tuple(line.replace("activecontrollercount 1", "activecontrollercount 0") for line in lines)
    told = overview([], [node("one", 1, *lines), node("two", 1, *other)])
    assert (told.under_replicated, told.under_min_isr) == (4, 2)
    assert (told.offline, told.topics, told.controllers) == (3, 5, 1)


def test_slow_requests_are_those_of_the_slowest_node_by_the_quantiles_that_are_told():
    def times(request: str, *values: float) -> list[str]:
        quantiles = ("0.50", "0.95", "0.99", "0.999")
        return [f'{TIME}{{request="{request}",quantile="{q}"}} {v}' for q, v in zip(quantiles, values, strict=True)]

    one = node("one", 1, *times("Fetch", 1, 2, 300, 400), *times("Produce", 5, 6, 7, 8), f"{TIME}_sum 9")
    two = node("two", 1, *times("Fetch", 2, 2, 20, 500))
    told = overview([], [one, two]).slow_requests
    assert [(each.name, each.values) for each in told] == [
        ("Fetch", {"p50_ms": 2, "p99_ms": 300, "p99.9_ms": 500}),
        ("Produce", {"p50_ms": 5, "p99_ms": 7, "p99.9_ms": 8}),
    ]


def test_groups_by_their_lag_and_clients_that_push():
    told = overview(
        [],
        [
            node(
                "one",
                1,
                'kafka_consumergroup_lag{consumergroup="g",topic="a",partition="0"} 3',
                'kafka_consumergroup_lag{consumergroup="g",topic="a",partition="1"} 4',
                'kafka_consumergroup_lag{consumergroup="h",topic="a",partition="1"} 90',
                'kafka_consumergroup_lag{consumergroup="idle",topic="a",partition="1"} 0',
                'client_rate{client_instance_id="x",client_id="c",client_software_name="s"} 1',
                'client_size{client_instance_id="x",client_id="c",client_software_name="s"} 1',
            )
        ],
    )
    assert [(each.name, each.values["lag"]) for each in told.groups] == [("h", 90), ("g", 7)]
    assert [(each.name, each.values) for each in told.clients] == [("c (s)", {"series": 2})]
