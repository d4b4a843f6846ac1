"""`tailrace format` and `tailrace broker`: a node from a settings file."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.broker.quorum.snapshots import SnapshotFiles
from tailrace.cli import main
from tailrace.model.ids import Uuid, uuid_text
from tailrace.real.disk import RealDisk
from tests.nodes import free_ports

WAIT_S = 20


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "node.toml"
    file.write_text(
        f'node.id = 3\nlisteners = "PLAINTEXT://127.0.0.1:0"\nlog.dirs = ["{tmp_path / "one"}", "{tmp_path / "two"}"]\n'
    )
    return file


def test_format_makes_the_folders_the_nodes_own(config: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["format", "--config", str(config)]) == 0
    assert capsys.readouterr().out.count("formatted") == 2
    one, two = (_properties(config.parent / name) for name in ("one", "two"))
    assert one["node.id"] == two["node.id"] == "3"
    assert one["cluster.id"] == two["cluster.id"]
    assert one["directory.id"] != two["directory.id"]


def test_format_refuses_what_is_formatted(config: Path, capsys: pytest.CaptureFixture[str]):
    main(["format", "--config", str(config)])
    before = _properties(config.parent / "one")
    assert main(["format", "--config", str(config)]) == 1
    assert "formatted already" in capsys.readouterr().err
    assert main(["format", "--config", str(config), "--ignore-formatted"]) == 0
    assert _properties(config.parent / "one") == before


def test_new_disk_joins_the_cluster_of_the_others(config: Path):
    main(["format", "--config", str(config)])
    cluster_id = _properties(config.parent / "two")["cluster.id"]
    (config.parent / "one" / "meta.properties").unlink()
    assert main(["format", "--config", str(config), "--ignore-formatted"]) == 0
    assert _properties(config.parent / "one")["cluster.id"] == cluster_id


def test_broker_starts_from_the_file_and_tells_what_has_no_effect(config: Path):
    with config.open("a") as file:
        file.write('early.start.listeners = "PLAINTEXT"\nnum.io.threads = 16\nnum.partitions = 2\n')
    main(["format", "--config", str(config)])
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace", "broker", "--config", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("ready: 127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, log
        assert re.search(r"no effect here are ignored\W+names=early.start.listeners,num.io.threads$", log, re.MULTILINE)
    finally:
        process.kill()
        process.communicate()


def test_broker_does_not_take_an_unformatted_folder(config: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["broker", "--config", str(config)]) == 1
    shown = capsys.readouterr().err
    assert str(config.parent / "one") in shown
    assert f"tailrace format --config {config}" in shown
    assert not (config.parent / "one").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("node.id = ", "is not TOML"),
        ("node.id = 1\nno.such.setting = 2", "no.such.setting"),
        (
            "node.id = 1\ncreate.topic.policy.class.name = 'x'",
            "create.topic.policy.class.name is not served: classes of",
        ),
        ("num.partitions = 2", "node.id"),
        ('node.id = "one"', "node.id"),
    ],
)
def test_file_that_does_not_parse(tmp_path: Path, text: str, told: str, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "node.toml"
    file.write_text(text)
    assert main(["format", "--config", str(file)]) == 1
    shown = capsys.readouterr().err
    assert str(file) in shown
    assert told in shown


def test_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["broker", "--config", str(tmp_path / "missing.toml")]) == 1
    assert "No such file" in capsys.readouterr().err


# --- a file that was written for Kafka

# What the server.properties of Kafka 4.3 sets, with ports and a folder of its own.
STOCK = """\
# The roles of this server.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller}
listeners=PLAINTEXT://:{port},CONTROLLER://:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={folder}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    port, controller = free_ports(2)
    file = tmp_path / "server.properties"
    file.write_text(STOCK.format(port=port, controller=controller, folder=tmp_path / "data"))
    return file


@pytest.mark.parametrize("options", [[], ["--standalone", "-t", "pmUXq7nqTtK6M3yHDKm5HA"]])
def test_the_file_that_kafka_comes_with_works(stock: Path, options: list[str]):
    assert main(["format", "-c", str(stock), *options]) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace", "broker", "-c", str(stock)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("ready: localhost:")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, log
        (warning,) = [line for line in log.splitlines() if "have no effect" in line]
        assert "num.io.threads,num.network.threads,num.recovery.threads.per.data.dir" in warning
    finally:
        process.kill()
        process.communicate()


def name_voters(text: str, voters: str) -> str:
    return re.sub("controller.quorum.bootstrap.servers=.*", f"controller.quorum.voters={voters}", text)


def test_three_files_with_voters_of_their_own_make_a_cluster(tmp_path: Path):
    ports = free_ports(6)
    voters = ",".join(f"{node + 1}@localhost:{ports[node + 3]}" for node in range(3))
    processes = []
    try:
        for node in range(3):
            file = tmp_path / f"{node}.properties"
            text = STOCK.format(port=ports[node], controller=ports[node + 3], folder=tmp_path / f"data-{node}")
            file.write_text(name_voters(text, voters).replace("node.id=1", f"node.id={node + 1}"))
            assert main(["format", "-c", str(file), "-t", CLUSTER_ID]) == 0
            words = [sys.executable, "-m", "tailrace", "broker", "-c", str(file)]
            processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        assert all(process.stdout.readline().startswith("ready: localhost:") for process in processes)
        admin = AdminClient({"bootstrap.servers": f"localhost:{ports[0]}"})
        (created,) = admin.create_topics([NewTopic("t", 1, 3)]).values()
        created.result(WAIT_S)
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(WAIT_S)
            finally:
                process.kill()
                process.communicate()


def test_a_quorum_of_others_is_never_guessed(stock: Path, capsys: pytest.CaptureFixture[str]):
    text = stock.read_text().replace("bootstrap.servers=localhost", "bootstrap.servers=other:9093,localhost")
    stock.write_text(text)
    assert main(["format", "-c", str(stock)]) == 1
    assert "--cluster-id" in capsys.readouterr().err


# --- the first voters of a quorum

ONE, TWO = "hjKUl1-jR0m0yStPSxGmGQ", "WtdF3-4GSd21rKRN5psMrQ"
CLUSTER_ID = "pmUXq7nqTtK6M3yHDKm5HA"
VOTERS = f"1001@one:9093:{ONE},1002@two:9094:{TWO}"


@pytest.fixture
def controller(tmp_path: Path) -> Path:
    file = tmp_path / "controller.toml"
    file.write_text(
        "node.id = 1001\nprocess.roles = ['controller']\ncontroller.listener.names = ['CONTROLLER']\n"
        f"listeners = 'CONTROLLER://127.0.0.1:9093'\nlog.dirs = ['{tmp_path / 'data'}']\n"
        "controller.quorum.bootstrap.servers = ['one:9093', 'two:9094']\n"
    )
    return file


def test_initial_controllers_are_stored_as_voters(controller: Path):
    words = ["format", "--config", str(controller), "--cluster-id", CLUSTER_ID, "--initial-controllers", VOTERS]
    assert main(words) == 0
    assert _properties(controller.parent / "data")["directory.id"] == ONE
    assert _stored_voters(controller.parent / "data") == [(1001, ONE, "one", 9093), (1002, TWO, "two", 9094)]


def test_standalone_votes_alone(controller: Path):
    assert main(["format", "--config", str(controller), "--cluster-id", CLUSTER_ID, "--standalone"]) == 0
    own = _properties(controller.parent / "data")["directory.id"]
    assert _stored_voters(controller.parent / "data") == [(1001, own, "127.0.0.1", 9093)]


@pytest.fixture
def named(controller: Path) -> Path:
    text = controller.read_text()
    controller.write_text(re.sub("bootstrap.servers = .*", "voters = '1001@one:9093,1002@[::1]:9094'", text))
    return controller


def test_voters_that_the_settings_name_are_the_same_on_all(named: Path):
    assert main(["format", "--config", str(named), "--cluster-id", CLUSTER_ID]) == 0
    stored = _stored_voters(named.parent / "data")
    assert [(number, *address) for number, _, *address in stored] == [(1001, "one", 9093), (1002, "::1", 9094)]
    assert _properties(named.parent / "data")["directory.id"] == stored[0][1] != stored[1][1]
    shutil.rmtree(named.parent / "data")
    named.write_text(named.read_text().replace("node.id = 1001", "node.id = 1002"))
    assert main(["format", "--config", str(named), "--cluster-id", CLUSTER_ID]) == 0
    assert _stored_voters(named.parent / "data") == stored
    assert _properties(named.parent / "data")["directory.id"] == stored[1][1]


def test_who_joins_beside_voters_that_the_settings_name(named: Path):
    assert main(["format", "-c", str(named), "-t", CLUSTER_ID, "--no-initial-controllers"]) == 0
    assert not (named.parent / "data" / "__cluster_metadata-0").exists()


@pytest.mark.parametrize("words", [["--standalone"], ["--initial-controllers", VOTERS]])
def test_voters_are_named_once(named: Path, words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["format", "-c", str(named), "-t", CLUSTER_ID, *words]) == 1
    assert "controller.quorum.voters names the voters" in capsys.readouterr().err


def test_a_controller_that_joins_knows_no_voters(controller: Path):
    words = ["format", "--config", str(controller), "--cluster-id", CLUSTER_ID, "--no-initial-controllers"]
    assert main(words) == 0
    assert not (controller.parent / "data" / "__cluster_metadata-0").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "needs the cluster's id"),
        (["--cluster-id", "short"], "22 base64url characters"),
        (["--cluster-id", CLUSTER_ID], "--initial-controllers"),
        (["--cluster-id", CLUSTER_ID, "--initial-controllers", f"1002@two:9094:{TWO}"], "does not name this node"),
        (["--cluster-id", CLUSTER_ID, "--initial-controllers", "1001@one:9093"], "DIRECTORY_ID"),
        (["--cluster-id", CLUSTER_ID, "--initial-controllers", f"{VOTERS},1003@x:1:{TWO}"], "named twice"),
    ],
)
def test_a_controller_that_is_not_told_its_quorum(
    controller: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["format", "--config", str(controller), *words]) == 1
    assert told in capsys.readouterr().err
    assert not (controller.parent / "data" / "meta.properties").exists()


def test_cluster_ids_that_differ(config: Path, capsys: pytest.CaptureFixture[str]):
    config.write_text(config.read_text() + f'cluster.id = "{ONE}"\n')
    assert main(["format", "--config", str(config), "--cluster-id", TWO]) == 1
    assert "differ" in capsys.readouterr().err


def test_a_new_id_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["format", "--new-id"]) == 0
    assert len(capsys.readouterr().out.strip()) == 22


def _stored_voters(folder: Path) -> list[tuple[int, str, str, int]]:
    snapshots = SnapshotFiles.open(RealDisk(), str(folder / "__cluster_metadata-0"))
    assert snapshots.latest is not None
    kraft_version, voters = snapshots.read_control(snapshots.latest)
    assert kraft_version.kraft_version == 1
    return [
        (voter.voter_id, uuid_text(Uuid(voter.voter_directory_id)), voter.endpoints[0].host, voter.endpoints[0].port)
        for voter in voters.voters
    ]


def _properties(folder: Path) -> dict[str, str]:
    lines = (folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)
