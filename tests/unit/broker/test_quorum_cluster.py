"""The metadata of several nodes: one active controller, the same image everywhere, nothing lost that was answered."""

import asyncio
import errno

import pytest

from tailrace.controller.image import MetadataImage
from tailrace.controller.machine import Controller
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.sim.loop import SimLoop
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.admin import IncrementalAlterConfigsRequest as Alter
from tests.unit.broker.quorum_cluster import Cluster, Node, run


def setting(number: int, *, name: str = "log.retention.ms") -> Alter:
    """A change that needs no brokers: the dynamic default of a setting of all brokers."""
    config = Alter.AlterableConfig(name=name, config_operation=0, value=str(number))
    resource = Alter.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    return Alter(resources=[resource])


def setting_of(image: MetadataImage) -> str | None:
    return image.config(4, "").get("log.retention.ms")


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_one_is_active_and_all_follow(voters: int) -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=voters, observers=2)
        await cluster.start()
        await cluster.wait_active()
        for number in range(20):
            await cluster.submit(setting(number + 1))
        image = await cluster.wait_equal()
        assert setting_of(image) == "20"
        assert sum(quorum.is_active for quorum in cluster.running) == 1
        assert not any(cluster.nodes[node_id].quorum.is_active for node_id in (voters + 1, voters + 2))  # type: ignore[union-attr]

    run(story)


def test_a_single_voter_is_active_at_once() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=1)
        await cluster.start()
        assert cluster.nodes[1].quorum is not None
        assert cluster.nodes[1].quorum.is_active
        assert loop.now < 0.2, "only the device was waited for"

    run(story)


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_controller_is_succeeded_and_nothing_answered_is_lost(seed: int) -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=3, observers=1)
        await cluster.start()
        for number in range(6):
            await cluster.submit(setting(number + 1))
            active = await cluster.wait_active()
            active.kill()
            successor = await cluster.wait_active()
            assert successor.quorum is not None
            assert setting_of(successor.quorum.image) == str(number + 1)
            await active.start()
        assert setting_of(await cluster.wait_equal()) == "6"

    run(story, seed=seed)


def test_a_controller_that_is_cut_off_takes_back_what_nobody_else_has() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=3)
        await cluster.start()
        await cluster.submit(setting(1))
        old = await cluster.wait_active()
        assert old.quorum is not None
        default = {"min.insync.replicas": "1"}  # A new cluster has it.
        cluster.cut_off = {old.node_id}
        change = setting(2, name="log.retention.bytes")
        answer = asyncio.ensure_future(old.run(old.quorum.submit_local(change)))
        await asyncio.sleep(0.1)
        assert not answer.done(), "without a majority nothing is answered"
        assert old.quorum.image.config(4, "") == default | {"log.retention.ms": "1"}, "nor published"
        new = await cluster.wait_active()
        assert new is not old
        await cluster.submit(setting(3))
        with pytest.raises(KafkaError) as refusal:
            await answer
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert not old.quorum.is_active
        cluster.cut_off = set()
        image = await cluster.wait_equal()
        assert image.config(4, "") == default | {"log.retention.ms": "3"}
        assert not any("log.retention.bytes" in image.config(4, "") for image in old.published)

    run(story)


def test_a_controller_that_meets_a_bug_is_succeeded() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=3)
        await cluster.start()
        await cluster.submit(setting(1))
        old = await cluster.wait_active()
        assert old.quorum is not None
        bugs: list[Exception] = []

        def fail(_old: MetadataImage, _new: MetadataImage) -> None:
            raise RuntimeError("planted")

        old.quorum.subscribe(fail)
        old.quorum.on_bug = bugs.append
        with pytest.raises(KafkaError) as refusal:
            await old.run(old.quorum.submit_local(setting(2)))
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert [str(bug) for bug in bugs] == ["planted"]
        new = await cluster.wait_active()
        assert new is not old
        await cluster.submit(setting(3))
        await asyncio.sleep(10)
        assert new.quorum is not None
        assert setting_of(new.quorum.image) == "3"
        assert not old.quorum.is_active
        await old.stop()
        await old.start()
        assert setting_of(await cluster.wait_equal()) == "3"

    run(story)


def test_a_controller_whose_machine_fails_at_a_record_leads_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=3)
        await cluster.start()
        await cluster.submit(setting(1))
        old = await cluster.wait_active()
        assert old.quorum is not None
        with monkeypatch.context() as patched:
            patched.setattr(Controller, "replay", lambda *_: {}["planted"])
            with pytest.raises(KeyError):
                await old.run(old.quorum.submit_local(setting(2)))
        assert not old.quorum.is_active
        assert (await cluster.wait_active()) is not old
        await cluster.submit(setting(3))

    run(story)


def test_a_controller_whose_disk_is_full_is_succeeded() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=3)
        await cluster.start()
        await cluster.submit(setting(1))
        old = await cluster.wait_active()
        old.disk.fail("append", "*.log", error=errno.ENOSPC)
        await cluster.submit(setting(2))
        assert (await cluster.wait_active()) is not old
        await asyncio.sleep(5)
        old.disk.heal()
        await cluster.submit(setting(3))
        assert setting_of(await cluster.wait_equal()) == "3"

    run(story)


def test_a_power_loss_of_all_nodes_loses_nothing_that_was_answered() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=3, observers=1)
        await cluster.start()
        for number in range(1, 5):
            await cluster.submit(setting(number))
            for node in cluster.nodes.values():
                node.kill()
                node.disk.power_loss(SimRandom(number))
            await cluster.start()
            await cluster.wait_active()
            assert setting_of(await cluster.wait_equal()) == str(number)

    run(story)


def test_a_node_that_is_far_behind_gets_a_snapshot() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(
            loop,
            voters=3,
            observers=1,
            metadata_log_max_record_bytes_between_snapshots=3000,
            metadata_max_retention_bytes=0,
            metadata_log_segment_bytes=8 << 20,
        )
        await cluster.start()
        await cluster.submit(setting(1))
        await cluster.wait_equal()
        away = [cluster.nodes[4], next(node for node in cluster.nodes.values() if not _is_active(node))]
        for node in away:
            node.kill()
        for number in range(2, 60):
            await cluster.submit(setting(number))
        active = await cluster.wait_active()
        assert active.quorum is not None
        start_offset = active.quorum.log.start_offset
        assert start_offset > 20
        for node in away:
            await node.start()
        image = await cluster.wait_equal()
        assert setting_of(image) == "59"
        for node in away:
            assert node.quorum is not None
            assert node.quorum.log.start_offset >= start_offset
        # And from its own disk the next time.
        away[1].kill()
        await away[1].start()
        assert away[1].quorum is not None
        assert setting_of(away[1].quorum.image) is not None
        assert away[1].quorum.driver.voters.ids == (1, 2, 3), "a snapshot tells who votes"
        await cluster.wait_equal()

    run(story)


def test_an_idle_quorum_shows_that_it_lives() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=3)
        await cluster.start()
        await cluster.wait_active()
        before = (await cluster.wait_equal()).next_offset
        await asyncio.sleep(30)
        assert 5 <= (await cluster.wait_equal()).next_offset - before <= 7

    run(story)


def test_a_stopped_controller_hands_over() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=3)
        await cluster.start()
        await cluster.submit(setting(1))
        old = await cluster.wait_active()
        await cluster.wait_equal()
        stopped_at = loop.now
        await old.stop()
        new = await cluster.wait_active()
        assert new is not old
        assert loop.now - stopped_at < 0.5, "nobody had to notice that it is gone"
        await cluster.submit(setting(2))
        await old.start()
        assert setting_of(await cluster.wait_equal()) == "2"

    run(story)


def _is_active(node: Node) -> bool:
    return node.quorum is not None and node.quorum.is_active
