"""What an op of the controller sees, and what it gives back. An op only reads: its records change the image when they
are replayed, after they were appended to the log. When a broker was last heard, and how far its replicas reach, is no
metadata, and is noted at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.controller.brokers.sessions import Sessions
from tailrace.controller.image import MetadataImage
from tailrace.controller.partitions.candidates import Candidates
from tailrace.model.config import BrokerConfig
from tailrace.model.ports import Random
from tailrace.model.security import ANONYMOUS, Principal
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.controller.security.token_keys import TokenKeys

Charge = Callable[[int], None]


def free_of_charge(_partitions: int) -> None:
    """Who asks has no quota."""


class Asker(NamedTuple):
    """Who asks for a change."""

    principal: Principal = ANONYMOUS
    # Told how many partitions are about to be made or deleted, before they are. Raises KafkaError if that is more than
    # the quota of who asks for it lets them.
    charge: Charge = free_of_charge


THE_NODE = Asker()  # Nobody asks: a node does, or the controller itself.


class View(NamedTuple):
    # As of the last record written, committed or not.
    image: MetadataImage
    # The controller's own settings: from its file, and with the dynamic ones applied.
    static_config: BrokerConfig
    config: BrokerConfig
    random: Random
    now_ms: int
    sessions: Sessions
    candidates: Candidates
    token_keys: TokenKeys | None  # None where there are no delegation tokens.
    asker: Asker = THE_NODE


class Result(NamedTuple):
    # One atomic batch of the metadata log; empty if there is nothing to change.
    records: Sequence[Message]
    response: Message
    # Whether it may become several batches if it is too large for one: a client can ask for less, and a broker that has
    # many replicas cannot. The first of the records alone must do no harm then, for a controller may die in between.
    is_divisible: bool = False


class Decision(NamedTuple):
    """What the controller decides by itself, with nobody waiting for an answer. It is divisible, as above."""

    records: Sequence[Message]
