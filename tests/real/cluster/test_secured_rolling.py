"""Three production nodes taken from PLAINTEXT to TLS and logins, node by node, under load, as docs/security.md tells:

    open       where it begins: one listener for all, one for the quorum, both PLAINTEXT
    both       listeners with TLS beside them; whoever comes as nobody may do everything still
    moved      nodes call each other by the new ones; clients move
    closed     the old listeners are gone, and nobody may do anything without a credential

No acknowledged record is lost, and there is never a minute, nor ten seconds, without an acknowledgement.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.client.security.users import Login
from tailrace.model.config import STANDARD_AUTHORIZER
from tailrace.testing.users import ClientSettings
from tests.nodes import NODE_IDS, Nodes
from tests.real.anonymous import answers_to_anonymous, open_ports, processes_of

from .observe import create_topic, wait_in_sync
from .traffic import Traffic

pytestmark = pytest.mark.long

PASSWORD = "a secret of the admin"
PARTITIONS = 3
PAUSE_MAX_S = 10.0
SECURED = ("CLIENTS", "NODES", "QUORUM")


class Rolling(Nodes):
    """`stages[node]` is where each node is."""

    def __init__(self, folder: Path) -> None:
        self.listeners = ("PLAINTEXT", "CONTROLLER", *SECURED)
        super().__init__(folder, lambda _: {})
        self.stages = dict.fromkeys(NODE_IDS, "open")

    def settings(self, node_id: int) -> dict[str, str]:
        stage = self.stages[node_id]
        names = {"open": self.listeners[:2], "closed": SECURED}.get(stage, self.listeners)
        settings = super().settings(node_id) | {
            name: ",".join(f"{each}://{self.bound(node_id, each)}" for each in names)
            for name in ("listeners", "advertised.listeners")
        }
        if stage == "open":
            return settings
        settings |= {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "CLIENTS:SASL_SSL,NODES:SSL,QUORUM:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER,QUORUM",
            "ssl.keystore.location": str(self.folder / f"broker-{node_id}.pem"),
            "ssl.truststore.location": str(self.folder / "authority.pem"),
            "listener.name.nodes.ssl.client.auth": "required",
            "listener.name.quorum.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "authorizer.class.name": STANDARD_AUTHORIZER,
        }
        insiders = [f"User:CN=broker-{each}" for each in NODE_IDS]
        if stage in ("moved", "closed"):
            settings |= {
                "inter.broker.listener.name": "NODES",
                "controller.listener.names": "QUORUM,CONTROLLER" if stage == "moved" else "QUORUM",
                "controller.quorum.bootstrap.servers": ",".join(self.advertised(each, "QUORUM") for each in NODE_IDS),
            }
        nobody = [] if stage == "closed" else ["User:ANONYMOUS"]
        return settings | {"super.users": ";".join(("User:admin", *insiders, *nobody))}

    def roll(self, stage: str, *traffic: Traffic) -> None:
        for node_id in NODE_IDS:
            for each in traffic:
                each.begin_gap()
            self.stages[node_id] = stage
            self.restart(node_id)
            for each in traffic:
                each.wait_acked(100)
                wait_in_sync(each.place, each.topic)
                gap_s = each.longest_gap_s()
                print(f"node {node_id} {stage}: {each.topic} {gap_s * 1000:.0f} ms without an acknowledgement")
                assert gap_s < PAUSE_MAX_S


def _tailrace(*words: str, text: str | None = None) -> None:
    command = [sys.executable, "-m", "tailrace", *words]
    subprocess.run(command, input=text, check=True, capture_output=True, text=True, timeout=60)


def test_from_plaintext_to_logins_over_tls(tmp_path: Path):
    pytest.importorskip("cryptography")
    for name in [f"broker-{node_id}" for node_id in NODE_IDS]:
        _tailrace("certificate", "create", name, "--folder", str(tmp_path), "--name", "127.0.0.1")
    _tailrace("certificate", "create", "stranger", "--folder", str(tmp_path / "elsewhere"))
    with Rolling(tmp_path) as nodes:
        create_topic(nodes.bootstrap, "early", PARTITIONS)
        create_topic(nodes.bootstrap, "late", PARTITIONS)
        early = Traffic(nodes.bootstrap, "early", PARTITIONS, records_per_second=500)
        early.wait_acked(100)
        nodes.roll("both", early)
        _tailrace("user", "create", "admin", "--password-file", "-", "--bootstrap", nodes.bootstrap, text=PASSWORD)
        clients = ",".join(nodes.advertised(node_id, "CLIENTS") for node_id in NODE_IDS)
        admin = ClientSettings(clients, Login("admin", PASSWORD, str(tmp_path / "authority.pem")))
        late = Traffic(admin, "late", PARTITIONS, records_per_second=500)
        late.wait_acked(100)
        nodes.roll("moved", early, late)
        # Whoever is left on the old listeners moves now.
        early.finish()
        early.check()
        nodes.roll("closed", late)
        late.finish()
        late.check()
        places = open_ports(processes_of(str(tmp_path)))
        assert len(places) == len(NODE_IDS) * len(SECURED)
        strangers = str(tmp_path / "elsewhere" / "stranger.pem")
        authority = admin.login.authority
        assert not [told for place in places for told in answers_to_anonymous(place, authority, strangers)]
