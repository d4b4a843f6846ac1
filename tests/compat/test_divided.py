"""Members of groups and producers of several libraries on three nodes of which one is dead and the other two do not see
each other, so that nobody can be elected. Whoever led knows that it may not; the other one goes on naming it. Clients
are sent away by the one and back by the other for as long as it lasts; afterwards all go on by themselves."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tailrace.testing import LOW_LATENCY
from tests.real.cluster.observe import create_topic, wait_in_sync
from tests.real.cluster.test_mixed_faults import MortalNodes

from .groups.crowd import Member, python_member
from .test_java_renewal import LinesWriter, values_read

pytestmark = pytest.mark.long

TOPIC = "t"
LIBRARIES = ("aiokafka", "kafka_python", "confluent")
DIVIDED_S = 8.0
DEADLINE_S = 90.0
SETTINGS = {**LOW_LATENCY, "group.min.session.timeout.ms": 1000}


@contextmanager
def members_of(bootstrap: str, compile_java: Callable[..., list[str]]) -> Iterator[list[Member]]:
    """Each in a group of its own, Java's with both protocols."""
    java = compile_java("GroupMember")
    commands = {library: (python_member(library), "{}") for library in LIBRARIES}
    commands["java"] = (java, "{}")
    commands["java, newer protocol"] = (java, '{"group.protocol":"consumer"}')
    with ExitStack() as running:
        members = []
        for name, (command, settings) in commands.items():
            member = Member(name, [*command, bootstrap, f"group of {name}", TOPIC, settings])
            running.callback(lambda member=member: member.kill())
            members.append(member)
        yield members


def wait_read(members: list[Member], count: int) -> None:
    begun = time.monotonic()
    for member in members:
        while len(values_read(member)) < count:
            member.assert_running()
            assert time.monotonic() < begun + DEADLINE_S, f"it reads no more: {member.story()}"
            time.sleep(0.05)
        print(f"{member.name} after {time.monotonic() - begun:.1f} s")


def test_clients_go_on_by_themselves(tmp_path: Path, compile_java: Callable[..., list[str]]):
    with MortalNodes(tmp_path, SETTINGS) as nodes:
        create_topic(nodes.bootstrap, TOPIC, 1)
        wait_in_sync(nodes.bootstrap, TOPIC)
        writer = LinesWriter([*compile_java("LinesWriter"), nodes.bootstrap, TOPIC])
        try:
            with members_of(nodes.bootstrap, compile_java) as members:
                wait_read(members, 50)
                for dead, alive in ((1, (2, 3)), (2, (1, 3)), (3, (1, 2))):
                    nodes.kill(dead)
                    time.sleep(1.5)
                    nodes.network.cut(*alive)
                    time.sleep(DIVIDED_S)
                    nodes.network.heal()
                    wait_read(members, writer.count)
                    nodes.process(dead).communicate()
                    nodes.start(dead)
                    nodes.wait_ready(dead)
                    wait_in_sync(nodes.bootstrap, TOPIC)
                writer.finish()
                wait_read(members, writer.count)
                for member in members:
                    read = values_read(member)
                    assert [read[offset] for offset in sorted(read)] == [str(number) for number in range(writer.count)]
        finally:
            writer.close()
