"""The controller: a pure machine that turns admin requests into metadata records.

    op(request)      reads the image and decides: records for the log, and the response that waits for them
    replay(record)   the only way to change the image; called for each record once it is on the log
    revert(image)    forgets what was replayed but could not be made durable

The runtime (broker.quorum) appends the records of an op before it replays them, so the machine is never ahead of the
log; it may be ahead of what is committed, so a response is held back until the log has caught up.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tailrace.controller.effective import broker_config
from tailrace.controller.image import MetadataImage
from tailrace.controller.replay import Replay
from tailrace.controller.view import Result, View
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Random
from tailrace.wire.schema import Message

# By API key. Modules are imported when they are first asked for: a broker that starts needs few of them.
_OPS: dict[int, tuple[str, str]] = {
    19: ("topics", "create_topics"),
    20: ("topics", "delete_topics"),
    33: ("configs", "alter_configs"),
    37: ("partitions", "create_partitions"),
    44: ("configs", "incremental_alter_configs"),
    62: ("brokers", "register_broker"),
    63: ("brokers", "heartbeat"),
    67: ("brokers", "allocate_producer_ids"),
}


class Controller:
    def __init__(self, config: BrokerConfig, random: Random, *, cluster_id: str) -> None:
        self._static_config = config
        self._random = random
        self._replay = Replay(MetadataImage(cluster_id))

    @property
    def image(self) -> MetadataImage:
        """As of the last record replayed."""
        return self._replay.image()

    def op(self, request: Message, now_ms: int) -> Result:
        """Raises KafkaError if the request fails as a whole; else each of its items has its own error."""
        image = self.image
        view = View(image, self._static_config, broker_config(self._static_config, image), self._random, now_ms)
        return _find_op(request)(view, request)

    def replay(self, offset: int, record: Message) -> None:
        self._replay.replay_record(offset, record)

    def replay_control(self, next_offset: int) -> None:
        self._replay.replay_control(next_offset)

    def revert(self, image: MetadataImage) -> None:
        self._replay = Replay(image)


def _find_op(request: Message) -> Callable[[View, Any], Result]:
    if request.api_key not in _OPS:
        reason = f"The controller does not serve {type(request).__name__}."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
    module, function = _OPS[request.api_key]
    op: Callable[[View, Any], Result] = getattr(import_module(f"tailrace.controller.{module}"), function)
    return op
