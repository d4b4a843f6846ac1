"""A broker's membership, with a real controller of one voter: registration, lease, fencing, failed folders, leaving."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.broker.cluster.forwarding import Forwarding
from tailrace.broker.cluster.lifecycle import BrokerIdentity, Lifecycle
from tailrace.broker.cluster.proof import find_epoch
from tailrace.broker.quorum.quorum import Quorum
from tailrace.controller.features import SUPPORTED_FEATURES
from tailrace.log.run_marks import read_last_run
from tailrace.model.config import Endpoint, parse_broker_config
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import TopicPartition, Uuid
from tailrace.replica.directories import LogDirectories
from tailrace.wire.apis.admin import UnregisterBrokerRequest
from tailrace.wire.apis.quorum import BrokerRegistrationRequest
from tests.unit.broker.world import World

SETTINGS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.dirs": "data,more",
    "broker.heartbeat.interval.ms": "20",
    "broker.session.timeout.ms": "400",
    "initial.broker.registration.timeout.ms": "300",
    "log.dir.failure.timeout.ms": "100",
    "controlled.shutdown.timeout.ms": "300",
}
CLUSTER_ID = "clusterclusterclusterA"


class Member:
    """A broker that is nothing but its membership, and what it was told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.config = parse_broker_config(SETTINGS)
        self.quorum = Quorum(self.config, world.ports, cluster_id=CLUSTER_ID, directory_id=Uuid(bytes(16)))
        self.epochs: list[int] = []
        self.lease_ends_ms = 0.0
        self.ended_ms: list[float] = []  # When it was told that the lease has ended.
        self.failures: list[Exception] = []
        self.directories: LogDirectories
        self.lifecycle: Lifecycle

    async def start(self, *, cluster_id: str = CLUSTER_ID) -> None:
        ports = self.world.ports
        self.directories = LogDirectories.open(
            ports.disk,
            ports.clock,
            ports.random,
            self.config.log_dirs,
            node_id=1,
            cluster_id=CLUSTER_ID,
            required="data",
        )
        await self.quorum.start()
        forwarding = Forwarding(self.quorum, None, ports.clock, request_timeout_ms=1000)
        self.lifecycle = Lifecycle(
            self.config,
            ports,
            forwarding,
            BrokerIdentity(
                cluster_id=cluster_id,
                incarnation_id=Uuid(ports.random.uuid()),
                endpoints=[Endpoint("PLAINTEXT", "127.0.0.1", 1)],
                features=[(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
            ),
            self.directories,
            metadata_offset=lambda: self.quorum.image.next_offset - 1,
            find_epoch=lambda incarnation: find_epoch(self.quorum, forwarding, 1, incarnation),
            on_epoch=self.epochs.append,
            on_lease=self._take_lease,
            on_lease_end=lambda: self.ended_ms.append(ports.clock.monotonic_ms()),
            on_failure=self.failures.append,
        )

    def _take_lease(self, ends_ms: float) -> None:
        self.lease_ends_ms = ends_ms

    async def close(self) -> None:
        await self.lifecycle.close()
        await self.quorum.close()
        for directory in self.directories:
            directory.close(broker_epoch=self.lifecycle.broker_epoch)

    @property
    def registration(self):
        return self.quorum.image.brokers[1]

    async def wait(self, condition) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def member(world: World | None = None, **options) -> AsyncIterator[Member]:
    one = Member(world or World())
    await one.start(**options)
    try:
        yield one
    finally:
        await one.close()


async def test_a_broker_is_fenced_until_it_asks_not_to_be():
    async with member() as one:
        epoch = await one.lifecycle.register()
        assert one.epochs == [epoch]
        assert one.registration.epoch == epoch
        assert one.registration.log_dirs == tuple(one.directories.online_directory_ids())
        one.lifecycle.start()
        await asyncio.sleep(0.1)
        assert one.registration.fenced
        assert one.lease_ends_ms == 0.0
        await one.lifecycle.unfence()
        assert not one.registration.fenced
        assert not one.lifecycle.is_fenced


async def test_the_lease_is_counted_from_the_sending_of_a_heartbeat():
    async with member() as one:
        await one.lifecycle.register()
        one.lifecycle.start()
        before_ms = one.world.clock.monotonic_ms()
        await one.lifecycle.unfence()
        after_ms = one.world.clock.monotonic_ms()
        assert before_ms - 20 <= one.lease_ends_ms - 400 <= after_ms
        first_ms = one.lease_ends_ms
        await one.wait(lambda: one.lease_ends_ms > first_ms + 60)


async def test_the_end_of_the_lease_is_told_once_no_heartbeat_is_answered():
    async with member() as one:
        await one.lifecycle.register()
        one.lifecycle.start()
        await one.lifecycle.unfence()
        await asyncio.sleep(0.5)
        assert one.ended_ms == []
        await one.quorum.close()
        await one.wait(lambda: bool(one.ended_ms))
        assert one.ended_ms[0] >= one.lease_ends_ms


async def test_a_silent_broker_is_fenced_and_a_speaking_one_is_not():
    async with member() as one:
        await one.lifecycle.register()
        one.lifecycle.start()
        await one.lifecycle.unfence()
        # A broker that is alone would be left: nobody could take over.
        answer = await one.quorum.submit_local(
            BrokerRegistrationRequest(
                broker_id=2,
                cluster_id=CLUSTER_ID,
                listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=2)],
                incarnation_id=bytes(15) + b"\x02",
                features=[
                    BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in SUPPORTED_FEATURES.items()
                ],
                log_dirs=[bytes([9]) * 16],
            )
        )
        assert answer.error_code == 0
        await asyncio.sleep(0.6)
        assert not one.registration.fenced
        await one.lifecycle.close()
        await one.wait(lambda: one.registration.fenced)
        assert one.world.clock.monotonic_ms() >= one.lease_ends_ms


async def test_a_broker_that_was_forgotten_registers_again():
    async with member() as one:
        first = await one.lifecycle.register()
        one.lifecycle.start()
        await one.lifecycle.unfence()
        await one.quorum.submit_local(UnregisterBrokerRequest(broker_id=1))
        assert 1 not in one.quorum.image.brokers
        await one.wait(lambda: 1 in one.quorum.image.brokers and not one.registration.fenced)
        assert one.epochs == [first, one.registration.epoch]
        assert one.registration.epoch > first
        assert one.lifecycle.broker_epoch == one.registration.epoch


async def test_a_cluster_that_is_not_ours_is_refused_at_once():
    async with member(cluster_id="anotheranotheranotherA") as one:
        with pytest.raises(KafkaError) as caught:
            await one.lifecycle.register()
        assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_a_registration_is_tried_for_a_bounded_time():
    async with member() as one:
        await one.quorum.driver.close()
        one.quorum._end_term()
        start_ms = one.world.clock.monotonic_ms()
        with pytest.raises(KafkaError) as caught:
            await one.lifecycle.register()
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert 150 <= one.world.clock.monotonic_ms() - start_ms <= 2000


async def test_a_folder_of_another_broker_may_be_the_original_or_the_copy():
    async with member() as one:
        features = [
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ]
        await one.quorum.submit_local(
            BrokerRegistrationRequest(
                broker_id=9,
                cluster_id=CLUSTER_ID,
                incarnation_id=bytes(16),
                features=features,
                log_dirs=list(one.directories.online_directory_ids())[:1],
            )
        )
        with pytest.raises(
            KafkaError, match="one is a copy of the other, and only who made it can tell which"
        ) as caught:
            await one.lifecycle.register()
        assert caught.value.code is ErrorCode.INVALID_REGISTRATION


async def test_who_is_put_out_by_a_late_request_without_proof_is_back_at_once():
    async with member() as one:
        await one.lifecycle.register()
        one.lifecycle.start()
        await one.lifecycle.unfence()
        late = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes(16),
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            log_dirs=list(one.directories.online_directory_ids()),
        )
        await one.quorum.submit_local(late)
        assert one.registration.fenced
        start_ms = one.world.clock.monotonic_ms()
        await one.wait(lambda: not one.registration.fenced and one.registration.epoch == one.lifecycle.broker_epoch)
        assert one.world.clock.monotonic_ms() - start_ms < one.config.broker_session_timeout_ms
        assert len(one.epochs) == 2


async def test_a_failed_folder_is_told_to_the_controller():
    async with member() as one:
        await one.lifecycle.register()
        one.lifecycle.start()
        await one.lifecycle.unfence()
        failed = one.directories[1]
        _break(one, failed.path)
        one.lifecycle.hurry()
        await one.wait(lambda: failed.directory_id not in one.registration.log_dirs)
        assert one.directories[0].directory_id in one.registration.log_dirs
        await asyncio.sleep(0.2)
        assert one.failures == []


async def test_a_broker_stops_if_a_failed_folder_cannot_be_told():
    async with member() as one:
        await one.lifecycle.register()
        one.lifecycle.start()
        await one.lifecycle.unfence()
        one.quorum._end_term()  # From now on there is no controller.
        _break(one, one.directories[1].path)
        await one.wait(lambda: one.failures)
        assert isinstance(one.failures[0], StorageError)


def _break(one: Member, path: str) -> None:
    directory = next(each for each in one.directories if each.path == path)
    one.world.disk.fail("append", f"{path}/t-0/*", error=errno.EIO)
    with pytest.raises(StorageError):
        directory.open_log(TopicPartition("t", 0), one.config.topic_defaults, topic_id=Uuid(bytes(15) + b"\x09"))
    assert directory.is_offline


async def test_a_clean_stop_is_proved_to_the_next_registration():
    world = World()
    async with member(world) as one:
        first = await one.lifecycle.register()
    async with member(world) as one:
        assert one.directories.previous_broker_epoch == first
        assert await one.lifecycle.register() > first


async def test_a_kill_between_registration_and_mark_costs_no_proof(monkeypatch):
    world = World()
    monkeypatch.setattr(LogDirectories, "note_running", lambda *_: None)
    async with member(world) as one:
        one.lifecycle._proof_epoch = 0  # As of a run before it.
        await one.lifecycle.register()
        registered = one.lifecycle.broker_epoch
        forwarding = Forwarding(one.quorum, None, world.ports.clock, request_timeout_ms=1000)
        for directory in one.directories:
            last_run = read_last_run(world.ports.disk, directory.path)
            assert last_run.broker_epoch == 0
            assert await find_epoch(one.quorum, forwarding, 1, last_run.incarnation) == registered
        assert await find_epoch(one.quorum, forwarding, 1, "of somebody else") is None


async def test_leaving_waits_for_the_controller_to_let_go():
    async with member() as one:
        await one.lifecycle.register()
        one.lifecycle.start()
        await one.lifecycle.unfence()
        async with asyncio.timeout(0.25):
            await one.lifecycle.shut_down()
        assert one.registration.in_controlled_shutdown or one.registration.fenced


async def test_leaving_is_not_waited_for_without_end():
    async with member() as one:
        await one.lifecycle.register()
        one.lifecycle.start()
        await one.lifecycle.unfence()
        one.quorum._end_term()
        start_ms = one.world.clock.monotonic_ms()
        await one.lifecycle.shut_down()
        assert 290 <= one.world.clock.monotonic_ms() - start_ms <= 2000
