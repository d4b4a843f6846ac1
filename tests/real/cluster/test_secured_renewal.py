"""Three production nodes with mutual TLS get new certificates of another authority while they run, as docs/security.md
tells: first all of them trust both authorities, then one after the other shows its new certificate, then the old
authority is trusted no more. Files are replaced, nothing else. After each step a node is killed and starts again, so
that nodes with old and with new files have to find each other anew, under load, and nothing is lost.
"""

import os
import signal
import ssl
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tailrace.client.security.users import Login
from tailrace.testing.users import ClientSettings
from tests.certificates import Authority
from tests.nodes import NODE_IDS
from tests.real.anonymous import answers_to_anonymous, open_ports, processes_of

from .observe import create_topic, wait_in_sync
from .test_secured_nodes import PASSWORD, SecuredNodes, settings_of
from .traffic import Traffic

pytestmark = pytest.mark.long

PARTITIONS = 3
DEADLINE_S = 30.0
ALL_ADDRESSES = "IP:127.0.0.1"
TAKEN_UP = "certificates were read again"


class RenewedNodes(SecuredNodes):
    def trust(self, node_id: int, *authorities: Authority) -> None:
        _replace(self.folder / f"trust-{node_id}.pem", "".join(each.certificate.read_text() for each in authorities))

    def show(self, node_id: int, authority: Authority) -> None:
        own = authority.sign(f"broker-{node_id}", subject_alt_name=ALL_ADDRESSES)
        _replace(self.folder / f"broker-{node_id}.pem", own.joined().read_text())

    def log(self, node_id: int) -> str:
        return self._log(node_id).read_text()

    def wait_log(self, node_id: int, text: str, times: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.log(node_id).count(text) < times:
            assert time.monotonic() < deadline, f"{text!r} is not there {times} times: {self.log(node_id)[-2000:]}"
            time.sleep(0.05)

    def times_taken_up(self, node_id: int) -> int:
        return self.log(node_id).count(TAKEN_UP)

    def kill_and_start(self, node_id: int) -> None:
        self.kill(node_id)
        self.start_again(node_id)

    def start_again(self, node_id: int) -> None:
        self._processes[node_id].communicate()
        self._start(node_id)
        self._wait_ready(node_id)

    def signal(self, node_id: int, what: signal.Signals) -> None:
        self._processes[node_id].send_signal(what)

    def shown(self, node_id: int) -> str:
        host, _, port = self.bound(node_id, "NODES").rpartition(":")
        return ssl.get_server_certificate((host, int(port)), timeout=DEADLINE_S)


def _replace(path: Path, text: str) -> None:
    """At once, as a tool that renews certificates does it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    os.replace(new, path)


def settings_of_renewed(folder: Path, node_id: int) -> dict[str, str]:
    return settings_of(folder, node_id) | {
        "ssl.truststore.location": str(folder / f"trust-{node_id}.pem"),
        "ssl.files.check.interval.ms": "200",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    }


def make_admin(nodes: RenewedNodes, authorities: Path) -> ClientSettings:
    """Who logs in by SCRAM, made by one who logs in by PLAIN."""
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="{PASSWORD}";'
    config = nodes.folder / "admin.properties"
    config.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\nssl.truststore.location={authorities}\n"
    )
    words = ("user", "create", "admin", "--password-file", "-", "--bootstrap", nodes.bootstrap)
    command = [sys.executable, "-m", "tailrace", *words, "--command-config", str(config)]
    subprocess.run(command, input=PASSWORD, check=True, capture_output=True, text=True, timeout=60)
    return ClientSettings(nodes.bootstrap, Login("admin", PASSWORD, str(authorities)))


def test_another_authority_while_nodes_and_clients_work(tmp_path: Path):
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    both = tmp_path / "both.pem"
    both.write_text(old.certificate.read_text() + new.certificate.read_text())
    nodes = RenewedNodes(tmp_path, partial(settings_of_renewed, tmp_path))
    for node_id in NODE_IDS:
        nodes.trust(node_id, old)
        nodes.show(node_id, old)
    with nodes:
        admin = make_admin(nodes, both)
        create_topic(admin, "t", PARTITIONS)
        traffic = Traffic(admin, "t", PARTITIONS, records_per_second=300)
        traffic.wait_acked(100)
        before = {node_id: nodes.shown(node_id) for node_id in NODE_IDS}

        # Too early: nobody trusts it yet. It is refused, and the old one goes on.
        nodes.show(1, new)
        nodes.wait_log(1, "Let all of them trust both authorities first", 1)
        assert nodes.shown(1) == before[1]
        nodes.show(1, old)

        for node_id in NODE_IDS:
            taken_up = nodes.times_taken_up(node_id)
            nodes.trust(node_id, old, new)
            nodes.wait_log(node_id, TAKEN_UP, taken_up + 3)  # One for each listener.
        for node_id, other in zip(NODE_IDS, (2, 3, 1), strict=True):
            nodes.show(node_id, new)
            deadline = time.monotonic() + DEADLINE_S
            while nodes.shown(node_id) == before[node_id]:
                assert time.monotonic() < deadline, nodes.log(node_id)[-2000:]
                time.sleep(0.05)
            # Among nodes of both kinds, one that comes back.
            nodes.kill_and_start(other)
            traffic.wait_acked(50)
            wait_in_sync(admin, "t")
        for node_id in NODE_IDS:
            taken_up = nodes.times_taken_up(node_id)
            nodes.trust(node_id, new)
            nodes.wait_log(node_id, TAKEN_UP, taken_up + 3)
        nodes.kill_and_start(1)
        traffic.wait_acked(50)
        wait_in_sync(admin, "t")
        traffic.finish()
        traffic.check()

        # A certificate with the name of a node, of the authority that was trusted before, is a stranger's now.
        outdated = old.sign("broker-1", subject_alt_name=ALL_ADDRESSES).joined()
        places = open_ports(processes_of(str(tmp_path)))
        assert len(places) == len(NODE_IDS) * len(nodes.listeners)
        assert not [told for place in places for told in answers_to_anonymous(place, str(both), str(outdated))]
