"""ACLs that change on a secure cluster, by a client that we did not write, while its nodes are killed: what was
confirmed is there on every broker and nothing else, and what was taken is allowed by nobody."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tailrace.client.acls import AclAdmin, AclFilter
from tailrace.client.metadata import parse_bootstrap
from tailrace.client.security.settings import parse_security
from tailrace.model.acls import Kind
from tailrace.model.errors import KafkaError
from tailrace.real.cluster import open_cluster
from tailrace.testing import Cluster
from tailrace.testing.users import ClientSettings
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse

from .observe import create_topic, quorum_of, wait_in_sync
from .traffic import CLIENT

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
TOPIC = "t"
CHANGES = 12  # After each fault.


class Changes:
    """Gives and takes rights, one change after the other, each until it is confirmed. `kept` is what must be there."""

    def __init__(self, settings: ClientSettings) -> None:
        self.kept: set[str] = set()
        self.count = 0
        self.failure: BaseException | None = None
        self._admin = AdminClient({**settings.confluent(), **CLIENT})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_more(self) -> None:
        wanted, deadline = self.count + CHANGES, time.monotonic() + DEADLINE_S
        while self.count < wanted:
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, f"{self.count} changes, then nothing"
            time.sleep(0.01)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(2 * DEADLINE_S)
        assert not self._thread.is_alive()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                name = f"right-{self.count}"
                confirmed(lambda name=name: self._admin.create_acls([binding(name)]))  # type: ignore[misc]
                self.kept.add(name)
                if self.count % 3:
                    confirmed(lambda name=name: self._admin.delete_acls([binding(name, AclBindingFilter)]))  # type: ignore[misc]
                    self.kept.remove(name)
                self.count += 1
        except BaseException as failure:
            self.failure = failure


def binding(name: str, kind: type = AclBinding) -> AclBinding:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return kind(ResourceType.TOPIC, name, literal, "User:alice", "*", AclOperation.READ, allow)


def confirmed(change: Callable[[], dict[object, "asyncio.Future[object]"]]) -> None:
    """Again and again: both kinds of changes may be repeated."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            for future in change().values():
                future.result(20)  # type: ignore[call-arg]
            return
        except (KafkaException, TimeoutError):
            assert time.monotonic() < deadline, "a change is never confirmed"


async def rights_at(address: str, settings: ClientSettings) -> set[str]:
    cluster = open_cluster(parse_bootstrap(address), security=parse_security(settings.login.java()))
    try:
        return {acl.name for acl in await AclAdmin(cluster).find(AclFilter(kind=Kind.TOPIC))}
    finally:
        cluster.close()


async def sees(address: str, settings: ClientSettings) -> bool:
    """Whether that broker tells of the topic."""
    cluster = open_cluster(parse_bootstrap(address), security=parse_security(settings.login.java()))
    try:
        connection = await cluster.any_connection()
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        answer = await connection.call(request, MetadataResponse)
        return not answer.topics[0].error_code
    finally:
        cluster.close()


def wait_seen(cluster: Cluster, settings: ClientSettings, *, is_seen: bool) -> float:
    """Until every broker judges so; how long it took."""
    begun = time.monotonic()
    for address in cluster.bootstrap.split(","):
        while asyncio.run(sees(address, settings)) != is_seen:
            assert time.monotonic() < begun + DEADLINE_S, f"{address} does not know of the change"
            time.sleep(0.01)
    return time.monotonic() - begun


def test_changes_outlive_every_kill():
    with Cluster(brokers=3, secure=True) as cluster:
        admin = cluster.client_settings
        create_topic(admin, TOPIC, 3)
        alice = cluster.user("alice")
        client = AdminClient({**admin.confluent(), **CLIENT})
        changes = Changes(admin)
        changes.wait_more()

        def active_controller() -> str:
            return cluster.name_of(quorum_of(admin).leader_id)

        for choose in (lambda: 1, active_controller, lambda: 2, active_controller, lambda: None):
            node = choose()
            cluster.kill(node)
            if node is not None:  # Else all are dead.
                changes.wait_more()
            cluster.start(node)
            changes.wait_more()
            confirmed(lambda: client.create_acls([binding(TOPIC)]))
            given_s = wait_seen(cluster, alice, is_seen=True)
            confirmed(lambda: client.delete_acls([binding(TOPIC, AclBindingFilter)]))
            taken_s = wait_seen(cluster, alice, is_seen=False)
            print(f"kill -9 of {node}: a right is there after {given_s:.2f} s, and gone after {taken_s:.2f} s")
        changes.finish()
        wait_in_sync(admin, TOPIC)
        deadline = time.monotonic() + DEADLINE_S
        for address in cluster.bootstrap.split(","):
            # What was confirmed is in the metadata; a broker may hear of the last of it a moment later.
            while (found := rights_of(address, admin)) != changes.kept:
                assert time.monotonic() < deadline, (sorted(found ^ changes.kept), address)
                time.sleep(0.05)


def rights_of(address: str, admin: ClientSettings) -> set[str]:
    try:
        return asyncio.run(rights_at(address, admin))
    except KafkaError as error:
        return {error.message}
