"""The arithmetic of a cluster's size, against what can be counted by hand."""

import math

import pytest

from tailrace.cli.plan.figures import DEFAULT_FIGURES
from tailrace.cli.plan.sizing import Machine, Workload, assumptions, decide_plan
from tailrace.cli.plan.units import DAY

MILLION = Workload(messages_per_s=1e6, message_bytes=1_000, retention_s=7 * DAY, replication=3, fanout=3)
# Costs that make every sum easy.
ROUND = DEFAULT_FIGURES.measured(
    {
        "produce_s_per_gb": 1,
        "produce_us_per_request": 100,
        "fetch_s_per_gb": 0.5,
        "fetch_us_per_request": 10,
        "replicate_s_per_gb": 2,
        "broker_mb": 30,
        "partition_kb": 10,
        "connection_kb": 5,
        "disk_mb_per_s": 500,
    },
    "a test",
)


def needed(plan, resource):
    return next(need for need in plan.needs if need.resource == resource)


def test_a_million_messages_a_second_for_a_week():
    plan = decide_plan(MILLION, Machine(), DEFAULT_FIGURES)
    assert plan.stored_per_day == pytest.approx(259.2e12)
    assert plan.stored == pytest.approx(1.8144e15)
    assert plan.network_in == pytest.approx(3e9)
    assert plan.network_out == pytest.approx(5e9)
    assert plan.decided_by == "disk space"
    assert plan.brokers == math.ceil(1.8144e15 / (16e12 * 0.8)) == 142


def test_a_trillion_messages_a_day():
    plan = decide_plan(MILLION._replace(messages_per_s=1e12 / DAY), Machine(), DEFAULT_FIGURES)
    assert plan.workload.messages_per_s == pytest.approx(11.574e6, rel=1e-4)
    assert plan.stored_per_day == pytest.approx(3e15)


def test_processor_time_is_the_sum_of_what_brokers_do():
    workload = MILLION._replace(batch_bytes=100_000)
    plan = decide_plan(workload, Machine(busy=0.5, spare=1), ROUND)
    # 1 GB taken, in 10,000 requests; 2 GB copied at 2 s; 3 GB given, in 30,000 requests.
    assert needed(plan, "processor").total == pytest.approx(1 + 1 + 4 + 1.5 + 0.3)
    assert needed(plan, "processor").brokers == math.ceil(7.8 / 0.5) + 1


def test_small_batches_cost_processor_time_and_nothing_else():
    large, small = (decide_plan(MILLION._replace(batch_bytes=size), Machine(), ROUND) for size in (1e6, 1e4))
    assert needed(small, "processor").brokers > needed(large, "processor").brokers
    others = [need.resource for need in large.needs if need.resource != "processor"]
    assert [needed(small, name) for name in others] == [needed(large, name) for name in others]


def test_a_batch_holds_at_least_one_message():
    one, tiny = (decide_plan(MILLION._replace(batch_bytes=size), Machine(), ROUND) for size in (1_000, 1))
    assert needed(one, "processor") == needed(tiny, "processor")


def test_compression_saves_disk_and_network():
    plan = decide_plan(MILLION._replace(compression=4), Machine(), ROUND)
    assert plan.stored == pytest.approx(1.8144e15 / 4)
    assert plan.network_in == pytest.approx(3e9 / 4)


def test_large_machines_have_several_brokers_and_are_lost_with_them():
    small, large = (decide_plan(MILLION, Machine(cores=cores), ROUND) for cores in (2, 32))
    assert (small.machines, large.machine.brokers) == (small.brokers, 16)
    assert large.brokers == 16 * large.machines >= small.brokers
    assert needed(large, "replication").brokers == 3 * 16
    assert needed(large, "network").brokers == needed(small, "network").brokers + 15


def test_spare_brokers_come_on_top_where_the_rest_has_to_carry_the_load():
    none, two = (decide_plan(MILLION, Machine(spare=spare), ROUND) for spare in (0, 2))
    assert needed(two, "network").brokers == needed(none, "network").brokers + 2
    assert needed(two, "disk space").brokers == needed(none, "disk space").brokers


def test_a_small_workload_still_has_a_broker_for_each_copy():
    plan = decide_plan(Workload(10, 100, DAY, replication=3), Machine(spare=0), ROUND)
    assert (plan.brokers, plan.decided_by, plan.cores) == (3, "replication", 6)
    assert plan.partitions == 3


def test_partitions_are_small_enough_to_move_and_as_many_for_each_broker():
    plan = decide_plan(MILLION, Machine(partition_bytes=500e9), ROUND)
    assert plan.workload.ingress * 7 * DAY / plan.partitions <= 500e9
    assert plan.partitions % plan.brokers == 0


def test_memory_counts_partitions_connections_and_what_consumers_still_need():
    plan = decide_plan(MILLION._replace(lag_s=100, clients=2_000), Machine(), ROUND)
    replicas = plan.partitions * 3 / plan.brokers
    assert plan.process_bytes == pytest.approx(30e6 + replicas * 10e3 + 2_000 * 5e3)
    assert plan.memory_bytes == pytest.approx(plan.process_bytes + 3e9 * 100 / plan.brokers)


def test_every_figure_is_told_with_its_source():
    told = "\n".join(assumptions(decide_plan(MILLION, Machine(), ROUND)))
    assert told.count("(a test)") == len(ROUND)


def test_figures_that_are_none_are_refused():
    with pytest.raises(ValueError, match="speed is no figure of a plan: there are produce_s_per_gb"):
        ROUND.measured({"speed": 1}, "a test")
    with pytest.raises(ValueError, match="broker_mb is 'much', which is not a number"):
        ROUND.measured({"broker_mb": "much"}, "a test")
