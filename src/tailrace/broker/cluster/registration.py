"""A controller makes itself known: its listeners and features stand in the metadata (KIP-919).

One task asks the active controller until the image holds this incarnation, and again whenever it does not any more.
Nothing depends on it but DescribeCluster, DescribeQuorum and the judgement of feature upgrades: a controller votes and
leads without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailrace.model import events
from tailrace.model.errors import KafkaError
from tailrace.model.ids import Uuid
from tailrace.wire.apis.quorum import ControllerRegistrationRequest, ControllerRegistrationResponse

if TYPE_CHECKING:
    from tailrace.broker.cluster.forwarding import Forwarding
    from tailrace.controller.image import MetadataImage
    from tailrace.model.config import Endpoint

_log = events.logger("registration")

_RETRY_SECONDS = 0.5
_LOOK_SECONDS = 5.0


class ControllerRegistration:
    def __init__(
        self,
        node_id: int,
        forwarding: Forwarding,
        *,
        incarnation_id: Uuid,
        endpoints: Sequence[Endpoint],
        features: Sequence[tuple[str, int, int]],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._forwarding = forwarding
        self._image = image
        self._request = ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=incarnation_id,
            listeners=[
                ControllerRegistrationRequest.Listener(name=name, host=host, port=port)
                for name, host, port in endpoints
            ],
            features=[
                ControllerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in features
            ],
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._register_for_ever(), name="controller registration")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    async def _register_for_ever(self) -> None:
        while True:
            if self._is_known():
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            try:
                await self._forwarding.ask(self._request, ControllerRegistrationResponse)
            except KafkaError as error:
                _log.debug("the controller is not registered yet", cause=error)
            except Exception:
                _log.error("registering the controller failed", trace=True)
            await asyncio.sleep(_RETRY_SECONDS)

    def _is_known(self) -> bool:
        known = self._image().controllers.get(self._request.controller_id)
        return known is not None and known.incarnation_id == self._request.incarnation_id
