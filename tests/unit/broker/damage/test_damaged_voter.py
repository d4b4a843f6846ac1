"""One of several voters loses what it had synced: the others go on, it comes back, and it has no voice meanwhile."""

import asyncio
from collections.abc import Callable

import pytest

from tailrace.broker.quorum import driver
from tailrace.broker.quorum.damage.synced_end import FILE_NAME
from tailrace.broker.quorum.identity import read_state
from tailrace.broker.quorum.state_file import read_quorum_state
from tailrace.model.errors import StorageError
from tailrace.sim.loop import SimLoop
from tests.unit.broker.damage.test_damaged_node import cut, edit, starts
from tests.unit.broker.quorum_cluster import FOLDER, Cluster, Node, run, wait_until
from tests.unit.broker.test_quorum_cluster import setting, setting_of

LOG_FILE = f"{FOLDER}/00000000000000000000.log"


def flip(node: Node) -> None:
    edit(node.disk, LOG_FILE, starts(node.disk, LOG_FILE)[2] + 65)


def shorten(node: Node) -> None:
    cut(node.disk, LOG_FILE, starts(node.disk, LOG_FILE)[-4])


def remove_log(node: Node) -> None:
    node.disk.remove(LOG_FILE)


def remove_all_but_the_vote(node: Node) -> None:
    for name in node.disk.list(FOLDER):
        if name != "quorum-state":
            node.disk.remove(f"{FOLDER}/{name}")


DAMAGES = [flip, shorten, remove_log, remove_all_but_the_vote]


async def settled(loop: SimLoop) -> tuple[Cluster, Node, list[Node]]:
    """Three voters with some records, and which of them follow."""
    cluster = Cluster(loop, voters=3)
    await cluster.start()
    for number in range(20):
        await cluster.submit(setting(number + 1))
    await cluster.wait_equal()
    active = await cluster.wait_active()
    return cluster, active, [node for node in cluster.nodes.values() if node is not active]


def has_voice(node: Node) -> bool:
    state = read_quorum_state(node.disk, FOLDER)
    return state is not None and not state.must_catch_up


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_voter_catches_up_and_votes_again(damage: Callable[[Node], None]) -> None:
    async def story(loop: SimLoop) -> None:
        cluster, active, (first, second) = await settled(loop)
        first.kill()
        state = read_quorum_state(first.disk, FOLDER)
        damage(first)
        await cluster.submit(setting(100))
        await first.start()
        told = read_quorum_state(first.disk, FOLDER)
        assert state is not None
        assert told is not None
        assert told.must_catch_up
        assert (told.epoch, told.voted) == (state.epoch, state.voted), "it still knows how it has voted"
        await cluster.submit(setting(200))
        assert setting_of(await cluster.wait_equal()) == "200"
        await wait_until(lambda: has_voice(first))
        # Its vote is needed now, and it has all that was committed.
        active.kill()
        await cluster.submit(setting(300))
        assert setting_of(await cluster.wait_equal()) == "300"
        assert second.quorum is not None

    run(story)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_committed_waits_for_who_has_it(damage: Callable[[Node], None], is_restarted: bool) -> None:
    """One voter was away, one is damaged, and the third, which alone has all, dies: the two must not elect."""

    async def story(loop: SimLoop) -> None:
        cluster, active, (first, second) = await settled(loop)
        second.kill()
        await cluster.submit(setting(100))
        first.kill()
        damage(first)
        active.kill()
        await second.start()
        await first.start()
        if is_restarted:
            await asyncio.sleep(2)
            first.kill()
            await first.start()
        await asyncio.sleep(20)
        assert not any(quorum.driver.is_leader for quorum in cluster.running)
        assert not has_voice(first)
        await active.start()
        await wait_until(lambda: has_voice(first))
        await cluster.submit(setting(200, name="log.retention.bytes"))
        assert setting_of(await cluster.wait_equal()) == "100"

    run(story)


def test_with_a_vote_it_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, with a planted bug: the two elect, and what was answered is gone."""
    monkeypatch.setattr(driver, "read_state", lambda *found: read_state(*found)._replace(must_catch_up=False))

    async def story(loop: SimLoop) -> None:
        cluster, active, (first, second) = await settled(loop)
        second.kill()
        await cluster.submit(setting(100))
        first.kill()
        remove_log(first)
        active.kill()
        await second.start()
        await first.start()
        await cluster.wait_active()
        assert setting_of(await cluster.wait_equal()) == "20"

    run(story)


def test_all_may_be_damaged_one_after_the_other() -> None:
    async def story(loop: SimLoop) -> None:
        cluster, _, _ = await settled(loop)
        for number, damage in enumerate(DAMAGES * 3):
            node = cluster.nodes[1 + number % 3]
            await cluster.submit(setting(1000 + number))
            node.kill()
            damage(node)
            await node.start()
            await wait_until(lambda node=node: has_voice(node))  # type: ignore[misc]
            assert setting_of(await cluster.wait_equal()) == str(1000 + number)
            strays = [name for name in node.disk.list("/data") if name.endswith("-stray")]
            assert len(strays) == 1, "one damaged log is kept, not all there ever were"

    run(story)


def test_a_voter_without_its_vote_does_not_start() -> None:
    async def story(loop: SimLoop) -> None:
        _, _, (first, _) = await settled(loop)
        first.kill()
        first.disk.remove_folder(FOLDER)
        with pytest.raises(StorageError, match=r"no longer knows how it has voted.*Format"):
            await first.start()

    run(story)


def test_an_observer_fetches_again_whatever_is_damaged() -> None:
    async def story(loop: SimLoop) -> None:
        cluster = Cluster(loop, voters=1, observers=1)
        await cluster.start()
        for number in range(20):
            await cluster.submit(setting(number + 1))
        await cluster.wait_equal()
        observer = cluster.nodes[2]
        assert FILE_NAME not in observer.disk.list("/data"), "nothing was promised"
        observer.kill()
        flip(observer)
        await observer.start()
        assert setting_of(await cluster.wait_equal()) == "20"

    run(story)
