"""What goes wrong between two clusters: told with cause and remedy, nothing is lost, and it goes on where it can."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tailrace.cli import main
from tailrace.client.connection import ConnectionLimits
from tailrace.client.metadata import parse_bootstrap
from tailrace.client.security.settings import PLAINTEXT
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.model.errors import KafkaError
from tailrace.real.cluster import open_cluster
from tailrace.testing import Broker

DEADLINE_S = 30.0
LINK = ("--set", "sync.interval.ms=200")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "credentials").mkdir()
    with Broker({"mirror.credentials.dir": str(tmp_path / "credentials")}) as broker:
        yield broker


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def run(here: Broker, *words: str) -> None:
    assert main(["mirror", *words, "--bootstrap", here.bootstrap]) == 0


def write(client: dict[str, Any], topic: str, count: int, *, partition: int = 0) -> None:
    producer = Producer(client)
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def plain(broker: Broker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap}


def make(client: dict[str, Any], topic: str, partitions: int = 1) -> None:
    admin = AdminClient(client)
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(DEADLINE_S)


def drop(client: dict[str, Any], topic: str) -> None:
    admin = AdminClient(client)
    for made in admin.delete_topics([topic]).values():
        made.result(DEADLINE_S)


def wait(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


class Watched:
    def __init__(self, here: Broker, capsys: pytest.CaptureFixture[str], link: str = "dc1") -> None:
        self._here, self._capsys, self._link = here, capsys, link

    def partitions(self) -> dict[tuple[str, int], dict[str, Any]]:
        self._capsys.readouterr()
        run(self._here, "describe", self._link, "--json")
        lines = map(json.loads, self._capsys.readouterr().out.splitlines())
        return {(each["topic"], each["partition"]): each for each in lines}

    def wait_end(self, topic: str, end: int, partition: int = 0) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.partitions().get((topic, partition))
            return found if found is not None and found["high_watermark"] == end else None

        return wait(look, f"{topic} does not end at {end}: {self.partitions()}")

    def problems(self) -> str:
        self._capsys.readouterr()
        run(self._here, "describe", self._link)
        return self._capsys.readouterr().err

    def wait_problem(self, text: str) -> str:
        return wait(lambda: told if text in (told := self.problems()) else None, f"it does not say: {text}")


def test_what_the_command_refuses(here: Broker, source: Broker, capsys: pytest.CaptureFixture[str]):
    words = ("create", "dc1", "--source", source.bootstrap)
    for asked, told in (
        (("create", "loop", "--source", here.bootstrap), "a cluster cannot be a mirror of its own"),
        (("create", "dc1", "--source", "127.0.0.1:1"), "the source: cannot reach 127.0.0.1:1"),
        ((*words, "--set", "topicz=orders"), "A link has no setting 'topicz'"),
        ((*words, "--start", "monday"), "start is 'monday'"),
        (("failover", "dc1"), "there is no link 'dc1'"),
        (("pause", "dc1"), "There is no link 'dc1'. There are: none."),
    ):
        assert main(["mirror", *asked, "--bootstrap", here.bootstrap]) == 1
        assert told in capsys.readouterr().err
    run(here, *words, "--dry-run")
    assert main(["mirror", "describe", "dc1", "--bootstrap", here.bootstrap]) == 1


@pytest.mark.long
def test_a_topic_that_is_here_already_is_left_alone(here: Broker, source: Broker, capsys: pytest.CaptureFixture[str]):
    make(plain(here), "orders")
    write(plain(here), "orders", 3)
    write(plain(source), "orders", 9)
    write(plain(source), "other", 5)
    run(here, "create", "dc1", "--source", source.bootstrap, *LINK)
    watched = Watched(here, capsys)
    watched.wait_end("other", 5)
    assert "Topic 'orders' exists here and is no mirror" in watched.wait_problem("topics.exclude")
    write(plain(here), "orders", 1)
    assert ("orders", 0) not in watched.partitions()
    drop(plain(source), "orders")
    wait(lambda: "orders" not in watched.problems(), "what is told of a topic goes with it")


@pytest.mark.long
def test_what_a_promote_waits_for_is_told_no_more_once_it_is_taken_back(
    here: Broker, source: Broker, capsys: pytest.CaptureFixture[str]
):
    producer = Producer({**plain(source), "transactional.id": "open"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    run(here, "create", "dc1", "--source", source.bootstrap, *LINK)
    watched = Watched(here, capsys)
    watched.wait_end("orders", 1)
    run(here, "promote", "dc1")
    watched.wait_problem("are open at the source")
    run(here, "promote", "dc1", "--cancel")
    wait(lambda: "promote of" not in watched.problems(), "nothing is promoted any more")
    producer.abort_transaction(DEADLINE_S)


@pytest.mark.long
def test_a_topic_that_is_made_anew_at_the_source_stops(
    here: Broker, source: Broker, capsys: pytest.CaptureFixture[str]
):
    write(plain(source), "orders", 5)
    run(here, "create", "dc1", "--source", source.bootstrap, *LINK)
    watched = Watched(here, capsys)
    watched.wait_end("orders", 5)
    drop(plain(source), "orders")
    write(plain(source), "orders", 9)
    watched.wait_problem("was deleted at the source and made again")
    assert watched.partitions()["orders", 0]["high_watermark"] == 5
    run(here, "failover", "dc1", "--topic", "orders")
    write(plain(here), "orders", 1)
    assert watched.partitions()["orders", 0]["high_watermark"] == 7, "with the barrier before it"


@pytest.mark.long
def test_partitions_that_are_added_and_a_pause(here: Broker, source: Broker, capsys: pytest.CaptureFixture[str]):
    write(plain(source), "orders", 5)
    run(here, "create", "dc1", "--source", source.bootstrap, *LINK)
    watched = Watched(here, capsys)
    watched.wait_end("orders", 5)
    run(here, "pause", "dc1")
    admin = AdminClient(plain(source))
    for added in admin.create_partitions([NewPartitions("orders", 2)]).values():
        added.result(DEADLINE_S)
    write(plain(source), "orders", 4, partition=1)
    time.sleep(1)
    assert list(watched.partitions()) == [("orders", 0)]
    run(here, "resume", "dc1")
    watched.wait_end("orders", 4, partition=1)


@pytest.mark.long
def test_a_source_that_is_another_cluster_by_now(here: Broker, capsys: pytest.CaptureFixture[str]):
    with Broker() as source:
        write(plain(source), "orders", 5)
        run(here, "create", "dc1", "--source", source.bootstrap, *LINK)
        watched = Watched(here, capsys)
        watched.wait_end("orders", 5)
        port = source.port
    watched.wait_problem("cannot reach")
    with Broker(port=port) as other:
        write(plain(other), "orders", 50)
        watched.wait_problem("nothing is mirrored from there")
        time.sleep(0.5)
        assert watched.partitions()["orders", 0]["high_watermark"] == 5


@pytest.mark.long
def test_a_source_that_has_lost_what_it_confirmed_stops_its_mirror(
    here: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Its disk is put back to an earlier state, with the same ids, and it is written to again."""
    import shutil

    source = Broker(data=tmp_path / "source")
    source.start()
    write(plain(source), "orders", 5)
    source.stop()
    shutil.copytree(tmp_path / "source", tmp_path / "earlier")
    source.restart()
    write(plain(source), "orders", 20)
    run(here, "create", "dc1", "--source", source.bootstrap, *LINK)
    watched = Watched(here, capsys)
    watched.wait_end("orders", 25)
    source.stop()
    shutil.rmtree(tmp_path / "source")
    shutil.copytree(tmp_path / "earlier", tmp_path / "source")
    source.restart()
    try:
        watched.wait_problem("Nothing is mirrored any more")
        write(plain(source), "orders", 40)
        time.sleep(0.5)
        assert watched.partitions()["orders", 0]["state"] == "stopped"
        assert watched.partitions()["orders", 0]["high_watermark"] == 25
    finally:
        source.close()


def let_in(source: Broker) -> tuple[AdminClient, str]:
    """A user with the rights that a link needs, and the file to log in with."""
    admin = AdminClient(source.client_settings.confluent())
    user = source.user("mirror")
    rights = [READING, right(ResourceType.TOPIC, "*", AclOperation.DESCRIBE_CONFIGS)]
    rights += [right(ResourceType.TOPIC, "*", AclOperation.DESCRIBE)]
    rights += [right(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)]
    rights += [right(ResourceType.GROUP, "*", AclOperation.DESCRIBE)]
    for made in admin.create_acls(rights).values():
        made.result(DEADLINE_S)
    settings = {name: text for name, text in user.java().items() if name != "bootstrap.servers"}
    return admin, "".join(f"{name}={text}\n" for name, text in settings.items())


def right(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    pattern, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, name, pattern, "User:mirror", "*", operation, allow)


READING = right(ResourceType.TOPIC, "*", AclOperation.READ)


def test_rights_that_are_taken_away_and_given_back(here: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """By TLS and SCRAM, with a file on the broker; the metadata hold no secret."""
    with Broker(secure=True) as source:
        admin, settings = let_in(source)
        admin_client = source.client_settings.confluent()
        write(admin_client, "orders", 5)
        login = tmp_path / "credentials" / "dc1.properties"
        login.write_text(settings)
        login.chmod(0o600)
        run(here, "create", "dc1", "--source", source.bootstrap, "--source-config", str(login), *LINK)
        watched = Watched(here, capsys)
        watched.wait_end("orders", 5)
        taken = AclBindingFilter(
            READING.restype, "*", ResourcePatternType.LITERAL, "User:mirror", None, AclOperation.READ,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        for removed in admin.delete_acls([taken]).values():
            removed.result(DEADLINE_S)
        write(admin_client, "orders", 7)
        watched.wait_problem("TOPIC_AUTHORIZATION_FAILED")
        assert watched.partitions()["orders", 0]["high_watermark"] == 5
        for made in admin.create_acls([READING]).values():
            made.result(DEADLINE_S)
        assert watched.wait_end("orders", 12)["problem"] is None
        (password,) = re.findall(r'password="([^"]+)"', settings)
        assert password.encode() not in b"".join(
            path.read_bytes() for path in Path(here.data).rglob("*") if path.is_file()
        )


@pytest.mark.long
def test_a_source_whose_clock_is_wrong(here: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Its records come from days to come, which this cluster takes from no client, and are here as they are there."""
    settings = {"log.message.timestamp.after.max.ms": 1 << 60}
    with Broker(settings, data=tmp_path / "source") as source:
        producer = Producer(plain(source))
        now_ms = int(time.time() * 1000)
        for days in (3, -3, 0):
            for number in range(5):
                producer.produce("orders", b"%d" % number, partition=0, timestamp=now_ms + days * 86_400_000)
            assert producer.flush(DEADLINE_S) == 0
        run(here, "create", "dc1", "--source", source.bootstrap, *LINK)
        watched = Watched(here, capsys)
        assert watched.wait_end("orders", 15)["problem"] is None
        wait(lambda: 0 <= watched.partitions()["orders", 0]["behind_ms"] < 5000, "it is not behind")
        assert stored(Path(here.data)) == stored(tmp_path / "source")
        run(here, "promote", "dc1", "--wait", "30")
        write(plain(here), "orders", 5)
        assert watched.partitions()["orders", 0]["high_watermark"] == 21, "with the barrier before it"


def stored(folder: Path) -> bytes:
    (found,) = folder.rglob("orders-0/*.log")
    return found.read_bytes()


@pytest.mark.long
def test_a_password_that_is_changed_at_the_source(here: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The link says so, and goes on with the new one once the file has it; no broker is started anew."""
    with Broker(secure=True) as source:
        admin, settings = let_in(source)
        admin_client = source.client_settings.confluent()
        write(admin_client, "orders", 5)
        login = tmp_path / "credentials" / "dc1.properties"
        login.write_text(settings)
        run(here, "create", "dc1", "--source", source.bootstrap, "--source-config", str(login), *LINK)
        watched = Watched(here, capsys)
        watched.wait_end("orders", 5)
        (password,) = re.findall(r'password="([^"]+)"', settings)
        mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        changes = [UserScramCredentialUpsertion("mirror", mechanism, b"another one")]
        for changed in admin.alter_user_scram_credentials(changes).values():
            changed.result(DEADLINE_S)
        source.restart()
        watched.wait_problem("source: ")
        write(admin_client, "orders", 7)
        assert watched.partitions()["orders", 0]["high_watermark"] == 5
        login.write_text(settings.replace(password, "another one"))
        assert watched.wait_end("orders", 12)["problem"] is None
        wait(lambda: "problem: " not in watched.problems(), "no problem is left")


def test_a_transaction_that_reaches_a_mirror_is_refused_and_aborted(
    here: Broker, source: Broker, capsys: pytest.CaptureFixture[str]
):
    """By a producer whose id and epoch the source has given out too; the next transaction goes on."""
    make(plain(here), "own")
    for number in range(3):
        loader = Producer({**plain(source), "transactional.id": f"loader-{number}"})
        loader.init_transactions(DEADLINE_S)
        loader.begin_transaction()
        loader.produce("orders", b"there", partition=0)
        loader.commit_transaction(DEADLINE_S)
    run(here, "create", "dc1", "--source", source.bootstrap, *LINK)
    watched = Watched(here, capsys)
    watched.wait_end("orders", 6)
    asyncio.run(refused_and_aborted(here))
    assert watched.partitions()["orders", 0]["high_watermark"] == 6


async def refused_and_aborted(here: Broker) -> None:
    for version in (2, 1):  # Brokers add partitions to transactions by themselves; clients do.
        cluster = open_cluster(parse_bootstrap(here.bootstrap), security=PLAINTEXT, limits=ConnectionLimits())
        options = TransactionOptions(f"id-{version}", version_max=version, retry_timeout_ms=20_000)
        async with TransactionalProducer(cluster, options) as producer:
            producer.begin()
            await producer.send("own", b"refused with the rest", partition=0)
            with pytest.raises(KafkaError) as raised:
                await (await producer.send("orders", b"here", partition=0))
            assert "POLICY_VIOLATION" in repr(raised.value.__cause__ or raised.value) + str(raised.value)
            await producer.abort()
            producer.begin()
            await producer.send("own", b"taken", partition=0)
            await producer.commit()
        cluster.close()


def test_two_clusters_that_mirror_each_other_mirror_nothing_back(
    here: Broker, source: Broker, capsys: pytest.CaptureFixture[str]
):
    write(plain(source), "orders", 5)
    write(plain(here), "payments", 7)
    run(here, "create", "dc1", "--source", source.bootstrap, "--prefix", "dc1.", *LINK)
    run(source, "create", "dc2", "--source", here.bootstrap, "--prefix", "dc2.", *LINK)
    Watched(here, capsys).wait_end("dc1.orders", 5)
    Watched(source, capsys, "dc2").wait_end("dc2.payments", 7)
    time.sleep(1)
    assert {topic for topic, _ in Watched(here, capsys).partitions()} == {"dc1.orders"}
    assert {topic for topic, _ in Watched(source, capsys, "dc2").partitions()} == {"dc2.payments"}
