"""Rates and waiting clients, read from what nodes tell by /metrics."""

from tailrace.balance.run.metrics import decide_complaint, decide_rates, parse_reading
from tailrace.model.ids import PartitionIndex, TopicPartition

ORDERS = TopicPartition("orders", PartitionIndex(0))


def text(*, node: int = 1, bytes_in: int = 0, bytes_out: int = 0, busy_ms: float = 0, p99: str = "4.0") -> str:
    return f"""\
# HELP tailrace_build_info what it is
tailrace_build_info{{version="0.1.0",node="{node}",cluster="c"}} 1
tailrace_partition_bytes_in_total{{topic="orders",partition="0"}} {bytes_in}
tailrace_partition_bytes_out_total{{topic="orders",partition="0"}} {bytes_out}
kafka_network_requestmetrics_localtimems_sum{{request="Produce"}} {busy_ms}
kafka_network_requestmetrics_localtimems_sum{{request="Fetch"}} 10
kafka_network_requestmetrics_totaltimems{{request="Produce",quantile="0.99"}} {p99}
kafka_network_requestmetrics_totaltimems{{request="Fetch",quantile="0.99"}} 500
kafka_network_requestmetrics_totaltimems_sum{{request="Produce"}} 9
"""


def test_rates_are_what_counters_have_gained():
    before = [parse_reading(text(bytes_in=1000, bytes_out=5000, busy_ms=100))]
    after = [parse_reading(text(bytes_in=3000, bytes_out=9000, busy_ms=600)), parse_reading(text(node=2, bytes_in=7))]
    rates = decide_rates(before, after, 2.0)
    assert rates.bytes_in == {ORDERS: 1000.0}
    assert rates.bytes_out == {ORDERS: 2000.0}
    assert rates.loops == {1: 0.25}


def test_a_counter_that_began_anew_is_no_rate():
    rates = decide_rates([parse_reading(text(bytes_in=1000))], [parse_reading(text(bytes_in=10))], 1.0)
    assert rates.bytes_in == {ORDERS: 0.0}


def test_clients_that_wait_longer_than_before_are_a_complaint():
    usual = [parse_reading(text(p99="20"))]
    assert decide_complaint(usual, [parse_reading(text(p99="29"))], None) is None
    assert decide_complaint(usual, [parse_reading(text(p99="9"))], None) is None
    found = decide_complaint(usual, [parse_reading(text(p99="31"))], None)
    assert found == "producers wait 31 ms for broker 1 (99th percentile; bound 30 ms)"
    assert decide_complaint(usual, [parse_reading(text(p99="15"))], 12.0) is not None
    assert decide_complaint([], [parse_reading(text(p99="NaN"))], None) is None


def test_what_is_no_node_of_ours_is_passed_over():
    assert parse_reading("go_gc_duration_seconds 1\n") is None
    assert parse_reading("tailrace_build_info{broken\n\x00") is None
