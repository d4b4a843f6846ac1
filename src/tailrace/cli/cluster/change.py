"""A broker added or decommissioned while the cluster works: the balancer moves partitions to it, or off it.

What the cluster was asked to move goes on moving if this command is interrupted; run again, it takes up what is left.
Whether the new broker is started, or the old one stopped, by `tailrace up` on this machine or by someone else makes no
difference to the moves.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tailrace.balance.plan.picture import Wish
from tailrace.balance.run.runner import BalanceError, ImpossibleError
from tailrace.cli import CommandError
from tailrace.cli.balance.options import make_runner
from tailrace.cli.output import ProgressBar, count_text, note, print_json
from tailrace.client.admin import Admin, BrokerEntry
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.supervisor import SupervisorError, ask_supervisor

T = TypeVar("T")

_POLL_S = 0.25
_SUPERVISOR_TIMEOUT_S = 90.0


class Change:
    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._options = options
        self._is_json = options.json
        self._deadline_ms = cluster.ports.clock.monotonic_ms() + options.wait * 1000
        self._moved = 0
        self._again = ""  # The command that takes up what is left.

    async def add(self, node_id: int | None) -> int:
        if node_id is None:
            node_id = await self._start_broker()
        self._again = f"tailrace cluster add --broker {node_id}"
        await self._wait_registered(node_id)
        await self._move(Wish(added=frozenset({node_id})), f"moving partitions to broker {node_id}")
        self._tell("added", node_id)
        return 0

    async def decommission(self, node_id: int) -> int:
        self._again = f"tailrace cluster decommission {node_id}"
        brokers = await self._brokers()
        if node_id not in [broker.node_id for broker in brokers]:
            known = ", ".join(str(broker.node_id) for broker in brokers)
            raise CommandError(f"there is no broker {node_id}: the cluster has {known}")
        wish = Wish(drained=frozenset({node_id}), must_only=True)
        await self._move(wish, f"moving partitions off broker {node_id}")
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

    async def _move(self, wish: Wish, title: str) -> None:
        """All of it: what could not be moved is an error."""
        with ProgressBar(title, 0, "partitions") as bar:
            runner = make_runner(self._cluster, self._options, bar.show)
            try:
                outcome = await runner.run(wish)
            except ImpossibleError as error:
                verb = f"broker {min(wish.drained)} cannot go" if wish.drained else "nothing moves"
                raise CommandError(f"{verb}: {error}") from None
            except BalanceError as error:
                raise CommandError(f"{error}. To go on with what is left, run: {self._again}") from None
        self._moved += outcome.moved
        if outcome.given_up:
            raise CommandError(f"not moved: {'; '.join(outcome.given_up)}. To go on, run: {self._again}")

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
