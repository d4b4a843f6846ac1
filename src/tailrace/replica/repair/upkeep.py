"""The scrub and the repairs of a broker, as one task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Ports
from tailrace.replica.manager import ReplicaManager
from tailrace.replica.repair.repairs import CallDamaged, MoveLead, Repairs
from tailrace.replica.repair.scrubber import Scrubber
from tailrace.replica.repair.source import CallBroker


class Scrubbing:
    def __init__(
        self,
        replicas: ReplicaManager,
        ports: Ports,
        *,
        call: CallBroker | None = None,
        move_lead: MoveLead | None = None,
        call_damaged: CallDamaged | None = None,
        is_compacting: Callable[[TopicPartition], bool],
    ) -> None:
        self.repairs = Repairs(
            replicas,
            ports,
            call=call,
            move_lead=move_lead,
            call_damaged=call_damaged,
            is_compacting=is_compacting,
        )
        self.scrubber = Scrubber(replicas, ports, self.repairs)

    async def run(self) -> None:
        """Until it is cancelled. A copy that was being made is removed then, or at the next start."""
        await asyncio.gather(self.scrubber.run(), self.repairs.run())
