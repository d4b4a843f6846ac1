"""Java's producer and a member of a group while nodes get certificates of another authority, are stopped just when
they should read them, and are killed: clients that trust both authorities lose nothing, and none is started anew."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.nodes import NODE_IDS
from tests.real.cluster.observe import create_topic, wait_in_sync
from tests.real.cluster.test_secured_nodes import PASSWORD
from tests.real.cluster.test_secured_renewal import RenewedNodes, make_admin, settings_of_renewed

from .groups.crowd import Member

pytestmark = pytest.mark.long

TOPIC = "t"
DEADLINE_S = 60.0


class LinesWriter:
    """Lines for a process of Java, numbered, until told to stop."""

    def __init__(self, command: list[str]) -> None:
        self.count = 0
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Ends, once everything is acknowledged; none may have failed."""
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert self._process.stdin is not None
        _, errors = self._process.communicate(timeout=2 * DEADLINE_S)
        assert self._process.returncode == 0, errors.decode()[-2000:]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        self._process.kill()
        self._process.communicate()

    def _run(self) -> None:
        assert self._process.stdin is not None
        while not self._stop.wait(0.01):
            self._process.stdin.write(b"%d\n" % self.count)
            self._process.stdin.flush()
            self.count += 1


@contextmanager
def clients(
    nodes: RenewedNodes, compile_java: Callable[..., list[str]], trust: Path
) -> Iterator[tuple[LinesWriter, Member]]:
    jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required username='admin' password='{PASSWORD}';"
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "reconnect.backoff.max.ms": "200",
    }
    properties = nodes.folder / "java.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in security.items()))
    told = ",".join(f'"{name}":"{value}"' for name, value in security.items())
    member = Member("java", [*compile_java("GroupMember"), nodes.bootstrap, "readers", TOPIC, f"{{{told}}}"])
    writer = LinesWriter([*compile_java("LinesWriter"), nodes.bootstrap, TOPIC, str(properties)])
    try:
        yield writer, member
    finally:
        writer.close()
        if member.is_alive:
            member.kill()


def values_read(member: Member) -> dict[int, str]:
    """By offset."""
    read = [each for event in member.journal if event.kind == "read" for each in event.what]
    return {offset: str(value) for _, offset, value in read}


def wait_read(member: Member, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(values_read(member)) < count:
        member.assert_running()
        assert time.monotonic() < deadline, f"{len(values_read(member))} of {count}: {member.story()}"
        time.sleep(0.1)


def test_java_goes_on_through_a_new_authority(tmp_path: Path, compile_java: Callable[..., list[str]]):
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    both = tmp_path / "both.pem"
    both.write_text(old.certificate.read_text() + new.certificate.read_text())
    nodes = RenewedNodes(
        tmp_path, lambda node_id: {**settings_of_renewed(tmp_path, node_id), "group.min.session.timeout.ms": "1000"}
    )
    for node_id in NODE_IDS:
        nodes.trust(node_id, old)
        nodes.show(node_id, old)
    with nodes:
        admin = make_admin(nodes, both)
        create_topic(admin, TOPIC, 1)
        wait_in_sync(admin, TOPIC)
        with clients(nodes, compile_java, both) as (writer, member):
            wait_read(member, 100)
            before = {node_id: nodes.shown(node_id) for node_id in NODE_IDS}
            for node_id in NODE_IDS:
                nodes.trust(node_id, old, new)
            for node_id in NODE_IDS:
                nodes.wait_log(node_id, "certificates were read again", 3)
            for node_id, other in zip(NODE_IDS, (2, 3, 1), strict=True):
                # Stopped when the file changes, beside one that dies: both find what the other one was not told.
                nodes.signal(node_id, signal.SIGSTOP)
                nodes.show(node_id, new)
                nodes.kill(other)
                time.sleep(1)
                nodes.signal(node_id, signal.SIGCONT)
                nodes.start_again(other)
                deadline = time.monotonic() + DEADLINE_S
                while nodes.shown(node_id) == before[node_id]:
                    assert time.monotonic() < deadline, nodes.log(node_id)[-2000:]
                    time.sleep(0.1)
                wait_in_sync(admin, TOPIC)
                wait_read(member, writer.count)
            for node_id in NODE_IDS:
                nodes.trust(node_id, new)
            for node_id in NODE_IDS:
                # With new connections alone, and no old one left that the old authority had let in.
                nodes.kill(node_id)
                nodes.start_again(node_id)
                wait_in_sync(admin, TOPIC)
            wait_read(member, writer.count)
            writer.finish()
            wait_read(member, writer.count)
        read = values_read(member)
        assert [read[offset] for offset in sorted(read)] == [str(number) for number in range(writer.count)]
        print(f"{writer.count} records")
