"""The Java consumer, of the newest client and of 3.9: alone, in turn with another protocol, and on a cluster under
faults."""

import time
from collections.abc import Callable

import pytest

from tests.compat.conftest import maven_jars

from .crowd import Crowd, Member, python_member

pytestmark = pytest.mark.long

PARTITIONS = 6
ASSIGNORS = "org.apache.kafka.clients.consumer."
RANGE = f"{ASSIGNORS}RangeAssignor"
COOPERATIVE = f"{ASSIGNORS}CooperativeStickyAssignor"
KINDS = {
    "range": {"partition.assignment.strategy": RANGE},
    "roundrobin": {"partition.assignment.strategy": f"{ASSIGNORS}RoundRobinAssignor"},
    "cooperative-sticky": {"partition.assignment.strategy": COOPERATIVE},
    "defaults": {},
    "consumer": {"group.protocol": "consumer"},
    "consumer range": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}


@pytest.fixture(params=["4.3", "3.9"], scope="module")
def member(request: pytest.FixtureRequest, compile_java: Callable[..., list[str]]) -> list[str]:
    """The command of a member."""
    if request.param == "4.3":
        return compile_java("GroupMember")
    return compile_java("GroupMember", maven_jars("tests/compat/java/old/pom.xml"))


@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go(bootstrap: str, create_topic: Callable[..., str], member: list[str], kind: str):
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        writer = crowd.write()
        first, *_ = [crowd.add(member, **KINDS[kind]) for _ in range(3)]
        crowd.wait_shared()
        first.ask_to_close()
        first.wait_closed()
        crowd.wait_shared()
        crowd.alive[0].kill()
        crowd.add(member, **KINDS[kind])
        crowd.wait_shared()
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written)
    assert summary.lost == 0


def _roll(crowd: Crowd, members: list[Member], command: list[str], **settings: str) -> list[Member]:
    """Every member is replaced, one after the other."""
    fresh = []
    for old in members:
        old.ask_to_close()
        old.wait_closed()
        fresh.append(crowd.add(command, **settings))
        crowd.wait_shared()
    return fresh


def test_from_eager_to_cooperative_to_the_newer_protocol_and_back(
    bootstrap: str, create_topic: Callable[..., str], member: list[str]
):
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        writer = crowd.write()
        members = [crowd.add(member, **{"partition.assignment.strategy": RANGE}) for _ in range(2)]
        crowd.wait_shared()
        # Each way as its KIP wants it: both assignors first (KIP-429), then the new one alone, then KIP-848.
        both = {"partition.assignment.strategy": f"{COOPERATIVE},{RANGE}"}
        members = _roll(crowd, members, member, **both)
        members = _roll(crowd, members, member, **KINDS["cooperative-sticky"])
        members = _roll(crowd, members, member, **KINDS["consumer"])
        members = _roll(crowd, members, member, **KINDS["cooperative-sticky"])
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written)
    assert (summary.lost, summary.repeated) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("range", {"partition.assignment.strategy": "range"}),
        ("consumer", {"group.protocol": "consumer"}),
        ("range", {"group.protocol": "consumer"}),
    ],
)
def test_java_and_librdkafka_share_a_group(
    bootstrap: str, create_topic: Callable[..., str], member: list[str], kind: str, other: dict[str, str]
):
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        writer = crowd.write()
        crowd.add(member, **KINDS[kind])
        crowd.wait_shared()
        crowd.add(python_member("confluent"), **other)
        crowd.wait_shared()
        crowd.add(member, **KINDS[kind])
        crowd.wait_shared()
        time.sleep(0.5)
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written)
    assert (summary.lost, summary.repeated) == (0, 0)
