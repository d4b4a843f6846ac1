"""What a supervisor reads before it forks the nodes of a secure cluster is what the nodes would read."""

from pathlib import Path
from unittest.mock import patch

import pytest

from tailrace.broker.auth.security import tls_settings
from tailrace.broker.cluster.roles import decide_roles
from tailrace.cli.node.machine.nodes import Cluster, open_cluster
from tailrace.cli.node.machine.preload import preload_stores
from tailrace.cli.secure.setup import prepare, secure_cluster_settings
from tailrace.model.errors import KafkaError
from tailrace.real.ports import real_ports

pytest.importorskip("cryptography")


def cluster_in(folder: Path, **own: str) -> Cluster:
    prepare(str(folder), names=[])
    settings = secure_cluster_settings(str(folder), own)
    where = {"host": "127.0.0.1", "advertised_host": "127.0.0.1", "port": 9092}
    return open_cluster(str(folder), settings, brokers=3, **where, is_secure=True)


def test_nodes_find_everything_read(tmp_path: Path):
    cluster = cluster_in(tmp_path / "data")
    configs = [cluster.config_of(plan) for plan in cluster.node_plans()]
    sides = [{(name, listens) for name, listens, _ in tls_settings(each, decide_roles(each))} for each in configs]
    assert sides[0] == {("CONTROLLER", True), ("CONTROLLER", False), ("HTTPS", True)}
    assert sides[-1] == {
        *(("SASL_SSL", True), ("NODES", True), ("HTTPS", True)),
        *(("NODES", False), ("CONTROLLER", False)),
    }
    preload_stores([configs[0], configs[-1]])
    tls = real_ports().tls
    assert tls is not None
    with patch("tailrace.real.tls.certificates.read_tls_identity", side_effect=AssertionError("read again")):
        for config in configs:
            for _, listens, settings in tls_settings(config, decide_roles(config)):
                tls.read_identity(settings, listens=listens)


def test_a_store_that_no_node_could_start_with_is_told_once(tmp_path: Path):
    missing = str(tmp_path / "mine.pem")
    cluster = cluster_in(tmp_path / "data", **{"ssl.keystore.location": missing})
    with pytest.raises(KafkaError, match=r"mine\.pem"):
        preload_stores(cluster.config_of(plan) for plan in cluster.node_plans())


def test_nodes_that_could_not_call_each_other_are_told(tmp_path: Path):
    """Their certificate was replaced by one of another authority."""
    cluster = cluster_in(tmp_path / "data")
    cluster_in(tmp_path / "other")
    stranger = (tmp_path / "other/security/broker.pem").read_bytes()
    (tmp_path / "data/security/broker.pem").write_bytes(stranger)
    with pytest.raises(KafkaError, match="not trusted"):
        preload_stores(cluster.config_of(plan) for plan in cluster.node_plans())
