"""Lives of streams groups (KIP-1071), to be led in front of any coordinator; they write down what members hear and what
is stored.

Without an initial delay and an assignment interval, but where a scenario asks for them: what members hear then depends
on nothing but the protocol. Answers leave out what is always the same. To record what Apache Kafka answers, into
streams.json beside this file:

    PYTHONPATH=src python -m tests.golden.groups.record_streams CLASS_PATH
"""

from collections.abc import Callable

from tailrace.wire.apis.groups import StreamsGroupHeartbeatRequest
from tests.golden.groups.streams_clients import REBALANCE_MS, Members, subtopology, task_ids

SESSION_MS = 1_500
HEARTBEAT_MS = 500
SIZE_MAX = 3
DELAY_MS = 1_000
SETTINGS = {
    "group.streams.session.timeout.ms": SESSION_MS,
    "group.streams.min.session.timeout.ms": SESSION_MS,
    "group.streams.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.streams.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.streams.max.size": SIZE_MAX,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
}

_Request = StreamsGroupHeartbeatRequest
COUNTED = {"changelogs": ["store-changelog"]}


def one_member(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a")
    m.beat("a")
    m.beat("a", {"0": [0, 1]})
    m.describe()
    m.beat("a", epoch=-1)
    m.describe()


def two_members_share(m: Members) -> None:
    m.topics(**{"in": 4})
    m.join("a")
    m.join("b")
    m.beat("b", {})
    m.beat("a", {"0": [0, 1, 2, 3]})
    m.beat("a", {"0": [0, 1, 2, 3]})
    m.beat("b", {})
    m.describe()
    m.beat("a", {"0": [0, 1]})
    m.beat("b")
    m.beat("a", {"0": [0, 1]})
    m.beat("b", {"0": [2, 3]})


def one_leaves_and_the_other_gets_its_tasks(m: Members) -> None:
    two_members_share(m)
    m.beat("a", epoch=-1)
    m.beat("b")
    m.beat("b", {"0": [0, 1, 2, 3]})
    m.beat("a")


def a_third_joins_while_the_second_waits(m: Members) -> None:
    m.topics(**{"in": 6})
    m.join("a")
    m.join("b")
    m.beat("a", {"0": [0, 1, 2, 3, 4, 5]})
    m.join("c")
    m.beat("b")
    m.beat("a", {"0": [0, 1, 2]})
    m.beat("b")
    m.beat("c")
    m.beat("a", {"0": [0, 1]})
    m.beat("b")
    m.beat("c")
    m.beat("b", {"0": [3, 4]})
    m.beat("c", {"0": [2, 5]})
    m.join("d")


def a_silent_member_times_out(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a")
    m.join("b")
    m.pass_ms(SESSION_MS * 2 // 3)
    m.beat("b")
    m.pass_ms(SESSION_MS * 2 // 3)
    m.beat("b")
    m.beat("a")
    m.join("a")
    m.beat("b", {"0": [0, 1]})


def who_keeps_what_it_must_give_up_is_out(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a")
    m.join("b")
    m.beat("a", {"0": [0, 1]})
    m.pass_ms(REBALANCE_MS * 3 // 5)
    m.beat("a", {"0": [0, 1]})
    m.beat("b")
    m.pass_ms(REBALANCE_MS * 3 // 5)
    m.beat("a", {"0": [0, 1]})
    m.beat("b")


def lost_answers(m: Members) -> None:
    m.topics(**{"in": 4})
    m.join("a")
    m.join("a")
    m.join("b")
    m.beat("a", {"0": [0, 1, 2, 3]})
    m.beat("a", {"0": [0, 1]})
    m.beat("a", {"0": [0, 1]}, epoch=2)
    m.beat("a", {"0": [0]}, epoch=2)
    m.beat("a", {"0": [0, 1, 2]}, epoch=2)
    m.beat("a", epoch=2)
    m.beat("a", {"0": [0, 1]}, epoch=1)
    m.beat("a", {"0": [0, 1]}, epoch=9)
    m.beat("x", epoch=1)
    m.beat("x", epoch=-1)


def a_state_has_a_changelog(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a", subtopology(**COUNTED))
    m.describe()
    m.wait_created("store-changelog")
    m.beat("a")
    m.describe()
    m.beat("a", {"0": [0, 1]})


def topics_between_subtopologies(m: Members) -> None:
    m.topics(**{"in": 3, "other": 2})
    first = subtopology("0", sinks=["by-key-repartition"])
    second = subtopology(
        "1", sources=[], repartitions={"by-key-repartition": 0}, changelogs=["counts-changelog"], together=([], [0])
    )
    m.join("a", first, second)
    m.wait_created("by-key-repartition", "counts-changelog")
    m.beat("a")
    m.describe()


def topics_that_are_joined(m: Members) -> None:
    m.topics(**{"in": 3, "table": 2})
    first = subtopology("0", sinks=["by-key-repartition"])
    joined = subtopology("1", sources=["table"], repartitions={"by-key-repartition": 0}, together=([0], [0]))
    m.join("a", first, joined)
    m.wait_created("by-key-repartition")
    m.beat("a")
    m.describe()


def topics_that_cannot_be_joined(m: Members) -> None:
    m.topics(**{"in": 3, "table": 2})
    m.join("a", subtopology(sources=["in", "table"], together=([0, 1], [])))
    m.describe()
    m.topics(**{"in": 3, "table": 3})
    m.beat("a")


def as_many_as_the_application_says(m: Members) -> None:
    m.topics(**{"in": 3, "table": 2})
    first = subtopology("0", sinks=["by-key-repartition"])
    joined = subtopology("1", sources=["table"], repartitions={"by-key-repartition": 5}, together=([0], [0]))
    m.join("a", first, joined)
    alone = subtopology("1", sources=[], repartitions={"by-key-repartition": 5}, together=([], [0]))
    m.join("a", first, alone)
    m.join("b", first, alone, epoch=1)


def source_topics_are_missing(m: Members) -> None:
    m.join("a", subtopology(sources=["e", "d", "c", "b", "in"]))
    m.beat("a")
    m.join("a", subtopology())
    m.beat("a", epoch=-1)


def source_topics_come_grow_and_go(m: Members) -> None:
    m.join("a")
    m.topics(**{"in": 1})
    m.beat("a")
    m.topics(**{"in": 2})
    m.beat("a")
    m.beat("a", {"0": [0, 1]})
    m.topics()
    m.beat("a")
    m.beat("a", {})


def a_topology_grows_old(m: Members) -> None:
    m.topics(**{"in": 1, "more": 1})
    m.join("a", epoch=3)
    m.join("b", epoch=2)
    m.beat("b")
    m.join("c", epoch=4)
    m.join("c", subtopology(sources=["more"]), epoch=3)
    m.join("c", epoch=3)


def standbys(m: Members) -> None:
    m.topics(**{"in": 2, "store-changelog": 2})
    m.config("streams.num.standby.replicas", "1")
    counting = subtopology(**COUNTED)
    m.join("a", counting)
    m.join("b", counting)
    m.beat("a", {"0": [0, 1]})
    m.beat("a", {"0": [0]})
    m.beat("b", {})
    m.beat("a", {"0": [0]}, {"0": [1]})
    m.beat("b", {"0": [1]}, {"0": [0]})
    m.beat("a", epoch=-1)
    m.beat("b")
    m.beat("b", {"0": [1]}, {})
    m.beat("b", {"0": [0, 1]}, {})
    m.config("streams.num.standby.replicas", "0")
    m.beat("b")


def threads_of_one_process(m: Members) -> None:
    m.topics(**{"in": 2, "store-changelog": 2})
    m.config("streams.num.standby.replicas", "1")
    counting = subtopology(**COUNTED)
    m.join("a", counting, process_id="p")
    m.join("b", counting, process_id="p")
    m.beat("a", {"0": [0]})
    m.beat("b")
    m.beat("b", {"0": [1]})
    m.describe()


def endpoints(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a", user_endpoint=_Request.Endpoint(host="ha", port=1))
    m.beat("a", endpoint_information_epoch=0)
    m.join(
        "b", user_endpoint=_Request.Endpoint(host="hb", port=65535), client_tags=[_Request.KeyValue(key="z", value="1")]
    )
    m.beat("a", {"0": [0]}, endpoint_information_epoch=0)
    m.beat("b", {}, endpoint_information_epoch=1)
    m.beat("b", {"0": [1]}, endpoint_information_epoch=3)


def all_are_to_stop(m: Members) -> None:
    m.topics(**{"in": 2})
    m.join("a")
    m.join("b")
    m.beat("a", shutdown_application=True)
    m.beat("b")
    m.beat("a", epoch=-1)
    m.beat("b", epoch=-1, shutdown_application=True)
    m.join("b")


def the_first_assignment_waits(m: Members) -> None:
    m.topics(**{"in": 2})
    m.config("streams.initial.rebalance.delay.ms", str(DELAY_MS))
    m.join("a")
    m.join("b")
    m.beat("a")
    m.pass_ms(DELAY_MS * 3 // 2)
    m.beat("b")
    m.beat("a")


def assignments_take_turns(m: Members) -> None:
    m.topics(**{"in": 2})
    m.config("streams.assignment.interval.ms", str(DELAY_MS))
    m.join("a")
    m.join("b")
    m.beat("a", {"0": [0, 1]})
    m.pass_ms(DELAY_MS * 5 // 4)
    m.beat("a", {"0": [0, 1]})
    m.beat("b")


def what_is_refused(m: Members) -> None:
    m.topics(**{"in": 2})
    m.beat("a", epoch=1)
    m.beat("a", epoch=-1)
    m.join("a", rebalance_timeout_ms=-1)
    m.join("a", topology=None)
    m.join("a", instance_id="i")
    m.join("a", instance_id="")
    m.join("a", rack_id="")
    m.join("a", active_tasks=task_ids({"0": [0]}))
    m.join("a", standby_tasks=task_ids({"0": [0]}))
    m.join("a", warmup_tasks=task_ids({"0": [0]}))
    m.join("a", standby_tasks=None)
    m.join("a", task_offsets=[])
    m.join("a", task_end_offsets=[])
    m.join("")
    m.beat("a", epoch=-3)
    m.beat("a", epoch=-2)
    m.join("a")
    m.beat("a", {"1": [0]})
    m.beat("a", {"0": [2]})
    m.beat("a", topology=_Request.Topology(epoch=0, subtopologies=[subtopology()]))


def topologies_that_are_refused(m: Members) -> None:
    m.topics(**{"in": 2})
    regex = subtopology()
    regex.source_topic_regex = ["a.*"]
    m.join("a", regex)
    fixed = subtopology(**COUNTED)
    fixed.state_changelog_topics[0].partitions = 2
    m.join("a", fixed)
    m.join("a", subtopology(sources=[], changelogs=["x-changelog"]))
    m.join("a", subtopology(repartitions={"nobody-writes-it": 0}))
    m.join("a", subtopology(sources=[], sinks=["r"], repartitions={"r": 0}))
    m.join("a", subtopology(sources=["not a name", "in"]))


SCENARIOS: list[Callable[[Members], None]] = [
    one_member,
    two_members_share,
    one_leaves_and_the_other_gets_its_tasks,
    a_third_joins_while_the_second_waits,
    a_silent_member_times_out,
    who_keeps_what_it_must_give_up_is_out,
    lost_answers,
    a_state_has_a_changelog,
    topics_between_subtopologies,
    topics_that_are_joined,
    topics_that_cannot_be_joined,
    as_many_as_the_application_says,
    source_topics_are_missing,
    source_topics_come_grow_and_go,
    a_topology_grows_old,
    standbys,
    threads_of_one_process,
    endpoints,
    all_are_to_stop,
    the_first_assignment_waits,
    assignments_take_turns,
    what_is_refused,
    topologies_that_are_refused,
]
