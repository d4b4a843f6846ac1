"""Each library as a group on one broker: one member, then two that share, then the other one alone, under load."""

from collections.abc import Callable

import pytest

from tests.parts import need_node_clients

from .crowd import Crowd, python_member

PARTITIONS = 4

# The library, and what makes it choose its protocol and assignor.
KINDS = {
    "librdkafka range": ("confluent", {"partition.assignment.strategy": "range"}),
    "librdkafka roundrobin": ("confluent", {"partition.assignment.strategy": "roundrobin"}),
    "librdkafka cooperative-sticky": ("confluent", {"partition.assignment.strategy": "cooperative-sticky"}),
    "librdkafka consumer": ("confluent", {"group.protocol": "consumer"}),
    "librdkafka consumer range": ("confluent", {"group.protocol": "consumer", "group.remote.assignor": "range"}),
    "aiokafka range": ("aiokafka", {"assignor": "range"}),
    "aiokafka sticky": ("aiokafka", {"assignor": "sticky"}),
    "kafka-python range": ("kafka_python", {"assignors": ["range"]}),
    "kafka-python cooperative-sticky": ("kafka_python", {"assignors": ["cooperative-sticky"]}),
    "kafkajs": ("kafkajs", {}),
    "platformatic": ("platformatic", {}),
    "platformatic consumer": ("platformatic", {"groupProtocol": "consumer"}),
}


# These are left to the long run; the short one has at least one kind of each protocol of each library.
LONG = ("librdkafka roundrobin", "librdkafka consumer range", "aiokafka sticky", "kafka-python range", "platformatic")


def program(library: str) -> list[str]:
    """The command of a member; skips the test where the library cannot be had."""
    if library in ("kafkajs", "platformatic"):
        return ["node", str(need_node_clients() / f"{library}-member.mjs")]
    return python_member(library)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.long if kind in LONG else ()) for kind in KINDS])
def test_members_come_and_go(bootstrap: str, create_topic: Callable[..., str], kind: str):
    library, settings = KINDS[kind]
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        writer = crowd.write()
        first = crowd.add(program(library), **settings)
        crowd.wait_shared()
        crowd.add(program(library), **settings)
        crowd.wait_shared()
        first.ask_to_close()
        first.wait_closed()
        crowd.wait_shared()
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written, may_reread=library == "platformatic")
    assert summary.lost == 0
    # Nobody died, and who has a listener commits before it gives a partition back. The JavaScript libraries have none.
    assert summary.repeated == 0 or library in ("kafkajs", "platformatic")
