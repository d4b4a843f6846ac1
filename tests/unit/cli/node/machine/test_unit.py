"""What --processes makes of a file: ids, ports and folders that fit together, and data that is never taken over."""

import os
from pathlib import Path

import pytest

from tailrace.cli import CommandError
from tailrace.cli.node.machine import parse_processes
from tailrace.cli.node.machine.unit import configs_of, plan_unit
from tailrace.cli.node.storage import format_folder
from tailrace.model.config import BrokerConfig

CLUSTER_ID = "pmUXq7nqTtK6M3yHDKm5HA"
BROKER = {
    "node.id": "5",
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "one:9093",
    "listeners": "PLAINTEXT://:9092",
    "advertised.listeners": "PLAINTEXT://queue.example:9092",
    "log.dirs": "/disk-1,/disk-2",
}


CONTROLLER = {"process.roles": "controller", "listeners": "CONTROLLER://:9093", "advertised.listeners": ""}


def ports_of(config: BrokerConfig) -> list[int]:
    return [each.port for each in (*config.listeners, *config.metrics_listeners)]


def test_each_process_has_its_own_id_port_and_folders():
    configs = configs_of(BROKER, 3)
    assert [config.node_id for config in configs] == [5, 6, 7]
    assert [ports_of(config) for config in configs] == [[9092], [9093], [9094]]
    assert [str(config.advertised_listeners[0]) for config in configs][2] == "PLAINTEXT://queue.example:9094"
    assert configs[1].log_dirs == ("/disk-1/broker-6", "/disk-2/broker-6")
    assert configs[1].metadata_folder == "/disk-1/broker-6"


def test_ports_of_several_listeners_do_not_meet():
    many = BROKER | {"listeners": "PLAINTEXT://:9092,SSL://:9093", "metrics.listeners": "HTTP://127.0.0.1:9095"}
    many |= {"advertised.listeners": "PLAINTEXT://q:9092,SSL://q:9093"}
    configs = configs_of(many, 8)
    ports = [port for config in configs for port in ports_of(config)]
    assert len(set(ports)) == len(ports) == 24
    assert ports_of(configs[0]) == [9092, 9093, 9095]
    free = configs_of(BROKER | {"listeners": "PLAINTEXT://:0", "advertised.listeners": "PLAINTEXT://q:0"}, 2)
    assert [ports_of(config) for config in free] == [[0], [0]]


def test_only_the_first_is_a_controller_and_the_others_know_where():
    combined = {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dir": "/data",
    }
    first, second = configs_of(combined, 2)
    assert set(first.process_roles) == {"broker", "controller"}
    assert second.process_roles == ("broker",)
    assert [each.listener_name for each in second.listeners] == ["PLAINTEXT"]
    assert second.controller_quorum_bootstrap_servers == ("127.0.0.1:9093",)
    assert second.log_dirs == ("/data/broker-2",)
    assert [plan.is_controller for plan in plan_unit(combined, 2)] == [True, False]


def test_one_process_is_the_node_of_the_file():
    [alone] = configs_of(BROKER, 1)
    assert alone.log_dirs == ("/disk-1", "/disk-2")


@pytest.mark.parametrize(
    ("changes", "processes", "message"),
    [
        (CONTROLLER, 2, "a controller is one process"),
        ({"process.roles": "broker,controller", "controller.quorum.bootstrap.servers": ""}, 2, "give it a listener"),
        ({"advertised.listeners": "PLAINTEXT://q:65535"}, 2, "above 65535"),
    ],
)
def test_what_cannot_be_several(changes: dict[str, str], processes: int, message: str):
    settings = {name: value for name, value in (BROKER | changes).items() if value}
    if "controller" in settings["process.roles"] and "broker" in settings["process.roles"]:
        del settings["controller.listener.names"]
    with pytest.raises(CommandError, match=message):
        configs_of(settings, processes)


def test_data_of_others_is_not_taken_over(tmp_path: Path):
    settings = BROKER | {"log.dirs": str(tmp_path)}
    assert len(configs_of(settings, 2)) == 2
    format_folder(f"{tmp_path}/broker-7", cluster_id=CLUSTER_ID, node_id=7)
    assert len(configs_of(settings, 3)) == 3
    with pytest.raises(CommandError, match="broker-7 holds the data of one more broker"):
        configs_of(settings, 2)
    format_folder(str(tmp_path), cluster_id=CLUSTER_ID, node_id=5)
    with pytest.raises(CommandError, match=f"holds the data of a single process.*{tmp_path}/broker-5"):
        configs_of(settings, 3)


def test_how_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 3, 5})
    assert parse_processes("auto") == 3
    assert parse_processes("100") == 100
    for text in ("0", "101", "-1", "all", ""):
        with pytest.raises(CommandError, match="expected auto, or a number from 1 to 100"):
            parse_processes(text)
