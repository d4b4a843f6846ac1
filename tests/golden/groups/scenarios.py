"""What clients do to a classic group, told so that it can be done to any coordinator: to Apache Kafka 4.3 in real time,
of which `kafka.json` keeps what it answered and stored, and to our own machine, which must do the same.

A scenario names its clients ("a"), never member ids: a coordinator makes those up. Steps are at least `STEP_MS` apart,
and all times are far enough from each other that a slow machine does not change who comes first.
"""

from collections.abc import Callable
from typing import Any, Protocol

STEP_MS = 150
DELAY_MS = 400  # group.initial.rebalance.delay.ms
SESSION_MS = 1_500
REBALANCE_MS = 3_000
SIZE_MAX = 4  # group.max.size

RANGE = ("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff")
CHANGED = ("range", b"\x00\x00\x00\x00\x00\x01\x00\x01u\xff\xff\xff\xff")
# Kafka fails on metadata of a consumer that it cannot read; we do not, so none is here.
STICKY = ("sticky", b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x05owned")


class World(Protocol):
    """Each step is noted in the transcript with every answer that came since the step before."""

    def join(self, client: str, *protocols: tuple[str, bytes], version: int = 9, **fields: Any) -> None:
        """With the member id that the client was given last; without one if `new` is given."""

    def sync(self, client: str, assigns: str = "", version: int = 5, **fields: Any) -> None:
        """With assignments for these clients: their names."""

    def heartbeat(self, client: str, **fields: Any) -> None: ...

    def leave(self, *clients: str, version: int = 5, instances: str = "", reason: str | None = None) -> None: ...

    def leave_id(self, member_id: str, instance: str | None = None) -> None:
        """As an administrator, or somebody who is not a member."""

    def wait(self, duration_ms: int) -> None: ...


Scenario = Callable[[World], None]


def gather(world: World, clients: str, *protocols: tuple[str, bytes], **fields: Any) -> None:
    """All join, up to the generation; the first one leads."""
    for client in clients:
        world.join(client, *protocols, new=True, **fields)
    for client in clients:
        world.join(client, *protocols, **fields)
    world.wait(2 * DELAY_MS + STEP_MS)


def make_stable(world: World, clients: str, *protocols: tuple[str, bytes], **fields: Any) -> None:
    gather(world, clients, *protocols, **fields)
    sync_all(world, clients)


def sync_all(world: World, clients: str) -> None:
    for client in clients[1:]:
        world.sync(client)
    world.sync(clients[0], assigns=clients)


def one_member(world: World) -> None:
    make_stable(world, "a")
    world.heartbeat("a")
    world.wait(SESSION_MS // 2)
    world.heartbeat("a")
    world.sync("a")
    world.leave("a")
    world.heartbeat("a")
    world.sync("a")
    world.join("a")


def old_versions(world: World) -> None:
    world.join("a", version=0, new=True)
    world.join("b", version=3, new=True)
    world.wait(2 * DELAY_MS)
    sync_all(world, "ab")
    world.leave("b", version=2)
    world.leave("b", version=0)
    world.heartbeat("a")
    world.join("a", version=1)
    world.leave("a", version=1)


def a_member_comes(world: World) -> None:
    make_stable(world, "ab")
    world.join("c", new=True)
    world.heartbeat("a")
    world.join("c")
    world.heartbeat("a")
    world.sync("b")
    world.join("b")
    world.join("a")
    world.heartbeat("b", generation_id=1)
    world.heartbeat("b")
    sync_all(world, "abc")
    world.heartbeat("c")


def members_join_again(world: World) -> None:
    make_stable(world, "ab")
    world.join("b")
    world.join("b", CHANGED)
    world.heartbeat("a")
    world.join("a")
    world.join("b", CHANGED)
    world.join("a")
    world.sync("b")
    world.join("b", RANGE)
    world.join("a")
    sync_all(world, "ab")
    world.join("a", reason="because")
    world.join("b", RANGE)
    sync_all(world, "ab")


def a_session_ends(world: World) -> None:
    make_stable(world, "ab")
    world.wait(SESSION_MS - 500)
    world.heartbeat("a")
    world.wait(600)
    world.heartbeat("a")
    world.heartbeat("b")
    world.join("a")
    sync_all(world, "a")
    world.wait(SESSION_MS + 200)
    world.heartbeat("a")


def a_rebalance_runs_out_of_time(world: World) -> None:
    make_stable(world, "ab", session_timeout_ms=8_000)
    world.join("b", CHANGED, session_timeout_ms=8_000)
    world.wait(REBALANCE_MS - 600)
    world.heartbeat("a")
    world.wait(700)
    world.heartbeat("a")
    world.sync("b", assigns="ab")
    world.heartbeat("b")


def a_sync_never_comes(world: World) -> None:
    gather(world, "ab", session_timeout_ms=8_000)
    world.sync("a", assigns="ab")
    world.wait(REBALANCE_MS - 1_200)
    world.heartbeat("b")
    world.wait(1_000)
    world.heartbeat("b")
    world.heartbeat("a")
    world.join("a", session_timeout_ms=8_000)


def the_leader_dies_before_it_assigns(world: World) -> None:
    gather(world, "ab")
    world.sync("b")
    world.wait(SESSION_MS + 300)
    world.join("b")
    sync_all(world, "b")


def members_leave(world: World) -> None:
    make_stable(world, "abc", session_timeout_ms=8_000)
    world.leave("a", reason="done")
    world.heartbeat("b")
    world.join("b", session_timeout_ms=8_000)
    world.leave("c")
    sync_all(world, "b")
    world.join("d", new=True)
    world.leave("d", "b", "a")
    world.join("b", new=True)


def somebody_leaves_while_members_gather(world: World) -> None:
    make_stable(world, "ab", session_timeout_ms=8_000)
    world.join("a", session_timeout_ms=8_000)
    world.leave("a")
    world.join("b", session_timeout_ms=8_000)
    world.leave("b")
    world.join("c", version=3, new=True)
    world.leave_id("c-unknown")


def somebody_leaves_before_the_assignment(world: World) -> None:
    gather(world, "abc")
    world.sync("b")
    world.leave("c")
    world.join("b")
    world.leave("a")
    world.sync("b", assigns="b")


def all_leave_during_the_initial_delay(world: World) -> None:
    world.join("a", new=True)
    world.join("a")
    world.leave("a")
    world.wait(DELAY_MS)
    world.join("b", new=True)
    world.join("b")
    world.wait(DELAY_MS)


def members_prolong_the_initial_delay(world: World) -> None:
    world.join("a", new=True, version=3)
    world.wait(100)
    world.join("b", new=True, version=3)  # At 250 of 400 ms, so that the delay begins anew then.
    world.wait(200)
    world.join("c", new=True, version=3)  # At 600 of 800 ms.
    world.wait(250)
    world.wait(300)


def a_pending_id(world: World) -> None:
    make_stable(world, "a", session_timeout_ms=8_000)
    world.join("b", new=True, session_timeout_ms=1_000)
    world.join("a", session_timeout_ms=8_000)
    world.wait(1_100)
    world.join("b")
    world.sync("a", assigns="a")
    world.join("c", new=True)
    world.join("a", session_timeout_ms=8_000)
    world.leave("c")
    world.sync("a", assigns="a")


def protocols(world: World) -> None:
    world.join("a", RANGE, STICKY, new=True, version=3)
    world.join("b", ("only b", b""), STICKY, RANGE, new=True, version=3)
    world.join("c", STICKY, RANGE, new=True, version=3)
    world.join("d", ("only b", b""), new=True, version=3)
    world.wait(3 * DELAY_MS)
    world.sync("b", protocol_type="connect")
    world.sync("b", protocol_name="range")
    world.sync("b", protocol_type="consumer", protocol_name="sticky")
    world.sync("c", protocol_type=None)
    world.sync("c", protocol_name=None)
    world.sync("c", version=4)
    world.join("d", RANGE, protocol_type="connect", new=True)
    world.sync("a", assigns="abc")
    world.join("a", RANGE)
    world.join("a", ("only b", b""))


def a_full_group(world: World) -> None:
    for client in "abcde":
        world.join(client, new=True, version=3)
    world.wait(2 * DELAY_MS)
    world.join("e", new=True)
    sync_all(world, "abcd")
    world.join("e", new=True, group_instance_id="e")
    world.join("a")


def strangers(world: World) -> None:
    world.heartbeat("a", member_id="nobody", generation_id=1)
    world.sync("a", member_id="nobody", generation_id=1)
    world.join("a", member_id="nobody")
    world.leave_id("nobody")
    make_stable(world, "a")
    world.heartbeat("a", member_id="nobody", generation_id=1)
    world.heartbeat("a", generation_id=0)
    world.heartbeat("a", group_instance_id="i")
    world.sync("a", generation_id=2)
    world.sync("a", member_id="nobody")
    world.join("a", member_id="nobody")
    world.join("a", group_instance_id="i")
    world.leave_id("nobody")
    world.join("b", new=True, session_timeout_ms=99)
    world.join("b", new=True, session_timeout_ms=60_001)


def other_types(world: World) -> None:
    worker = ("connect", b"http://worker")
    make_stable(world, "a", worker, protocol_type="connect")
    world.leave("a")
    world.join("b", new=True, version=3)
    world.wait(DELAY_MS + STEP_MS)


def static_gather(world: World, *protocols: tuple[str, bytes]) -> None:
    for client in "ab":
        world.join(client, *protocols, group_instance_id=client, new=True, session_timeout_ms=8_000)
    world.wait(2 * DELAY_MS + STEP_MS)


def a_static_member_restarts(world: World) -> None:
    static_gather(world, RANGE, STICKY)
    sync_all(world, "ab")
    world.join("b", RANGE, STICKY, group_instance_id="b", new=True)
    world.sync("b", group_instance_id="b")
    world.heartbeat("b", group_instance_id="b")
    world.heartbeat("old b", group_instance_id="b")
    world.sync("old b", group_instance_id="b")
    world.join("old b", group_instance_id="b")
    world.leave("old b", instances="b")
    world.heartbeat("old b")
    world.heartbeat("a", group_instance_id="a")


def a_static_leader_restarts(world: World) -> None:
    static_gather(world, RANGE, STICKY)
    sync_all(world, "ab")
    world.join("a", RANGE, STICKY, group_instance_id="a", new=True, version=8)
    world.sync("a", group_instance_id="a")
    world.join("a", RANGE, STICKY, group_instance_id="a", new=True, version=9)
    world.sync("a", group_instance_id="a")
    world.join("b", STICKY, group_instance_id="b", new=True)
    world.join("a", RANGE, STICKY, group_instance_id="a")
    world.sync("b", group_instance_id="b")
    world.sync("a", assigns="ab", group_instance_id="a")


def a_static_member_restarts_in_between(world: World) -> None:
    static_gather(world)
    world.sync("b", group_instance_id="b")
    world.join("b", group_instance_id="b", new=True, session_timeout_ms=8_000)
    world.join("b", group_instance_id="b", new=True, session_timeout_ms=8_000)
    world.join("a", group_instance_id="a", session_timeout_ms=8_000)
    world.sync("b", group_instance_id="b")
    world.sync("a", assigns="ab", group_instance_id="a")


def static_members_are_removed(world: World) -> None:
    static_gather(world)
    sync_all(world, "ab")
    world.leave_id("", instance="a")
    world.leave_id("", instance="z")
    world.leave_id("")
    world.heartbeat("b", group_instance_id="b")
    world.leave("b", instances="b")


def a_static_member_stays_away(world: World) -> None:
    static_gather(world)
    sync_all(world, "ab")
    world.join("b", CHANGED, group_instance_id="b", session_timeout_ms=8_000)
    world.wait(REBALANCE_MS)
    world.sync("b", assigns="ab", group_instance_id="b")
    world.sync("a", group_instance_id="a")
    world.heartbeat("a", group_instance_id="a")


SCENARIOS: tuple[Scenario, ...] = (
    one_member,
    old_versions,
    a_member_comes,
    members_join_again,
    a_session_ends,
    a_rebalance_runs_out_of_time,
    a_sync_never_comes,
    the_leader_dies_before_it_assigns,
    members_leave,
    somebody_leaves_while_members_gather,
    somebody_leaves_before_the_assignment,
    all_leave_during_the_initial_delay,
    members_prolong_the_initial_delay,
    a_pending_id,
    protocols,
    a_full_group,
    strangers,
    other_types,
    a_static_member_restarts,
    a_static_leader_restarts,
    a_static_member_restarts_in_between,
    static_members_are_removed,
    a_static_member_stays_away,
)
