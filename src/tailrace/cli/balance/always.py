"""A balancer that is always there: `balance run --every`, and the process beside a broker that runs it.

With tailrace.balancer.enable every broker has such a process of its own, for a plan takes seconds in which a broker's
loop would stand still. Of all of them the one beside the live broker with the lowest id works; the others look on. It
leaves a run that somebody has started alone, unless nothing of it has changed since the last look: then it was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

from tailrace.balance.plan.picture import Wish
from tailrace.balance.run.look import Sight, look
from tailrace.balance.run.runner import BalanceError
from tailrace.balance.run.throttles import Throttles, TopicSettings
from tailrace.cli.balance.options import make_runner
from tailrace.cli.output import note
from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.model import events
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import KafkaError

_log = events.logger("supervisor")
_RESTART_SECONDS = 10.0


async def run_always(cluster: Cluster, options: argparse.Namespace, wish: Wish) -> int:
    """Until it is interrupted, or the broker that has started it is gone."""
    if options.beside is not None:
        asyncio.get_running_loop().add_reader(sys.stdin, sys.exit, 0)  # It only ever ends.
    seen: object = None
    while True:
        try:
            sight = await look(Admin(cluster))
            marked = await Throttles(Admin(cluster), 0).find_marked([topic.name for topic in sight.topics])
            state = (marked, sorted(sight.reassignments.items()))
            if _is_due(sight, marked, options.beside, is_still=state == seen):
                outcome = await make_runner(cluster, options).run(wish)
                if outcome.moved:
                    note(f"balancer: {outcome.moved} partitions moved, {outcome.copied_bytes:,} bytes copied")
            seen = state
        except (KafkaError, BalanceError) as error:
            note(f"balancer: {error}")
        await asyncio.sleep(options.every)


def _is_due(sight: Sight, marked: dict[str, TopicSettings], beside: int | None, *, is_still: bool) -> bool:
    is_first = beside is None or beside == min(sight.live, default=None)
    return is_first and (not marked or is_still)


class BalancerProcess:
    """Beside a broker: started again if it dies, and it ends when the broker does, however that ends."""

    def __init__(self, config: BrokerConfig, bootstrap: str) -> None:
        words = ["--bootstrap", bootstrap, "--beside", str(config.node_id)]
        words += ["--every", str(config.tailrace_balancer_interval_ms / 1000)]
        words += ["--throttle", f"{config.tailrace_balancer_throttle_bytes_per_second}B/s"]
        words += ["--metrics", config.tailrace_balancer_metrics] if config.tailrace_balancer_metrics else []
        security = config.tailrace_balancer_command_config
        words += ["--command-config", security] if security else []
        self._command = [sys.executable, "-m", "tailrace", "balance", "run", *words]
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.ensure_future(self._keep())

    async def _keep(self) -> None:
        while True:
            # It reads nothing from its stdin, and ends when that does.
            self._process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE)
            code = await self._process.wait()
            _log.warning("the balancer has ended and is started again", exit_code=code, seconds=_RESTART_SECONDS)
            await asyncio.sleep(_RESTART_SECONDS)

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
