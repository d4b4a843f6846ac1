"""A broker added or decommissioned while the cluster works: the moves of partitions, watched until they are done.

What the cluster was asked to move goes on moving if this command is interrupted; run again, it takes up what is left.
A question that fails for the moment is asked again until --wait is over, and a topic that is deleted meanwhile needs no
move.
Whether the new broker is started, or the old one stopped, by `tailrace up` on this machine or by someone else makes no
difference to the moves.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from tailrace.cli import CommandError
from tailrace.cli.cluster.moves import Racks, Replicas, decide_moves_off, decide_moves_to, replicas_of
from tailrace.cli.output import ProgressBar, count_text, note, print_json
from tailrace.client.admin import Admin, BrokerEntry
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.real.supervisor import SupervisorError, ask_supervisor

T = TypeVar("T")

_POLL_S = 0.25
_SUPERVISOR_TIMEOUT_S = 90.0
# A topic that was created meanwhile may have landed on the broker that goes: then it is emptied again.
_ROUNDS_MAX = 10


class Change:
    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._at_once = max(1, options.at_once)
        self._is_json = options.json
        self._deadline_ms = cluster.ports.clock.monotonic_ms() + options.wait * 1000
        self._moved = 0
        self._again = ""  # The command that takes up what is left.

    async def add(self, node_id: int | None) -> int:
        if node_id is None:
            node_id = await self._start_broker()
        self._again = f"tailrace cluster add --broker {node_id}"
        await self._wait_registered(node_id)
        racks = _racks(await self._brokers())
        partitions = replicas_of(await self._patiently(self._admin.topics))
        moves = decide_moves_to(node_id, partitions, racks)
        moved = await self._move(moves, f"moving partitions to broker {node_id}")
        await self._lead([partition for partition in moved if moves[partition][0] == node_id])
        self._tell("added", node_id)
        return 0

    async def decommission(self, node_id: int) -> int:
        self._again = f"tailrace cluster decommission {node_id}"
        brokers = await self._brokers()
        if node_id not in [broker.node_id for broker in brokers]:
            known = ", ".join(str(broker.node_id) for broker in brokers)
            raise CommandError(f"there is no broker {node_id}: the cluster has {known}")
        await self._empty(node_id)
        await self._stop_broker(node_id)
        await self._retried_unregister(node_id)
        self._tell("decommissioned", node_id)
        return 0

    # --- brokers

    async def _start_broker(self) -> int:
        cluster_id = await self._cluster_id()
        try:
            answer = await asyncio.to_thread(ask_supervisor, cluster_id, {"do": "add"}, timeout_s=_SUPERVISOR_TIMEOUT_S)
        except SupervisorError as error:
            raise CommandError(
                f"{error}; start the broker with `tailrace broker --config FILE`, then run: tailrace cluster add "
                "--broker ID"
            ) from None
        node_id = int(answer["node"]["node_id"])
        note(f"broker {node_id} started at {answer['node']['bootstrap']}")
        return node_id

    async def _stop_broker(self, node_id: int) -> None:
        request = {"do": "remove", "node": f"broker-{node_id}"}
        cluster_id = await self._cluster_id()
        try:
            await asyncio.to_thread(ask_supervisor, cluster_id, request, timeout_s=_SUPERVISOR_TIMEOUT_S)
        except SupervisorError:
            if node_id in await self._live():
                note(f"broker {node_id} is empty: stop it now; it is forgotten as soon as it has stopped")
        while node_id in await self._live():
            await self._pause(f"broker {node_id} has not stopped")

    async def _wait_registered(self, node_id: int) -> None:
        while node_id not in await self._live():
            await self._pause(f"broker {node_id} has not joined the cluster")

    async def _live(self) -> list[int]:
        return [broker.node_id for broker in await self._brokers() if not broker.is_fenced]

    async def _brokers(self) -> list[BrokerEntry]:
        """From another broker if the one that was asked has just gone."""
        return await self._patiently(self._admin.brokers)

    async def _retried_unregister(self, node_id: int) -> None:
        try:
            await self._patiently(lambda: self._admin.unregister_broker(node_id))
        except KafkaError as error:
            # The answer to an earlier try was lost.
            if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise

    async def _cluster_id(self) -> str:
        if self._cluster.cluster_id is None:
            await self._cluster.refresh([])
        return self._cluster.cluster_id or ""

    # --- partitions

    async def _empty(self, node_id: int) -> None:
        for _ in range(_ROUNDS_MAX):
            partitions = replicas_of(await self._patiently(self._admin.topics))
            racks = _racks(await self._brokers())
            racks.pop(node_id, None)
            moves, stuck = decide_moves_off(node_id, partitions, racks)
            if stuck:
                replicas = count_text(len(partitions[stuck[0]]), "replica")
                raise CommandError(
                    f"broker {node_id} cannot go: {stuck[0]} needs {replicas}, and {count_text(len(racks), 'broker')} "
                    "would be left. Add a broker first, or take a replica away"
                )
            if not moves:
                return
            await self._move(moves, f"moving partitions off broker {node_id}")
        raise CommandError(f"new partitions keep landing on broker {node_id}: pause whoever creates topics, and repeat")

    async def _move(self, moves: Mapping[TopicPartition, Replicas], title: str) -> list[TopicPartition]:
        """Gives those that have moved: all but those of topics that were deleted meanwhile."""
        waiting = dict(moves)
        moving: set[TopicPartition] = set()
        deleted: set[TopicPartition] = set()
        with ProgressBar(title, len(moves), "partitions") as bar:
            while waiting or moving:
                chosen = {key: waiting.pop(key) for key in list(waiting)[: max(0, self._at_once - len(moving))]}
                if chosen:
                    refused = await self._patiently(lambda: self._admin.begin_moves(chosen))  # noqa: B023 - awaited here
                    moving |= chosen.keys() - refused.keys()
                    waiting |= {key: chosen[key] for key, error in refused.items() if _may_be_tried_again(error)}
                    deleted |= refused.keys() - waiting.keys()
                moving &= await self._patiently(self._admin.reassignments)
                bar.show(len(moves) - len(waiting) - len(moving))
                if moving or waiting:
                    await self._pause(f"{count_text(len(waiting) + len(moving), 'partition')} still to move")
        self._moved += len(moves) - len(deleted)
        return [partition for partition in moves if partition not in deleted]

    async def _lead(self, partitions: list[TopicPartition]) -> None:
        """The new broker takes its leaderships now; by itself the balance of leaders looks every few minutes."""
        if partitions:
            await self._patiently(lambda: self._admin.elect_leaders(partitions))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A controller that moves, or a broker that is busy or gone, answers later, or another one does."""
        remaining_ms = int(self._deadline_ms - self._cluster.ports.clock.monotonic_ms())
        return await self._cluster.with_retries(ask, timeout_ms=max(0, remaining_ms))

    async def _pause(self, situation: str) -> None:
        if self._cluster.ports.clock.monotonic_ms() > self._deadline_ms:
            raise CommandError(f"{situation}; --wait is over. To go on with what is left, run: {self._again}")
        await asyncio.sleep(_POLL_S)

    def _tell(self, verb: str, node_id: int) -> None:
        if self._is_json:
            print_json({"broker": node_id, "action": verb, "partitions_moved": self._moved})
        else:
            print(f"{verb} broker {node_id}: {count_text(self._moved, 'partition')} moved")


def _may_be_tried_again(error: KafkaError) -> bool:
    """False if there is nothing to move any more. Raises what waiting does not help against."""
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return False
    if not error.code.retriable:
        raise error
    return True


def _racks(brokers: list[BrokerEntry]) -> dict[int, str | None]:
    """The racks of the live brokers: nothing is moved to a broker that does not serve."""
    racks: Racks = {broker.node_id: broker.rack for broker in brokers if not broker.is_fenced}
    return dict(racks)
