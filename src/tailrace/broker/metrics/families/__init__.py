"""What is told, by subject. Each module has a generator of pieces of text, which is left after any of them for a while:
a piece takes some ten microseconds, however many partitions there are.

Each is loaded when it is first asked, one at a time: a start does not wait for all of them, and no turn either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.model.ids import SHARE_GROUP_STATE_TOPIC

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    """All that there is to tell of a node."""
    from tailrace.broker.metrics.families import node

    yield from node.pieces(watched, text)
    from tailrace.broker.metrics.families import requests

    yield from requests.pieces(watched, text)
    from tailrace.broker.metrics.families import quorum

    yield from quorum.pieces(watched, text)
    if watched.roles.is_controller:
        from tailrace.broker.metrics.families import controller

        yield from controller.pieces(watched, text)
    if watched.roles.is_broker:
        yield from _pieces_of_broker(watched, text)
    from tailrace.broker.metrics.families import warnings

    yield from warnings.pieces(watched, text)
    yield text.end()


def _pieces_of_broker(watched: Watched, text: Text) -> Iterator[str]:
    from tailrace.broker.metrics.families import replicas

    yield from replicas.pieces(watched, text)
    from tailrace.broker.metrics.families.coordinators import groups

    yield from groups.pieces(watched, text)
    running = watched.services.coordination.running_transactions
    if running is not None:
        from tailrace.broker.metrics.families.coordinators import transactions

        yield from transactions.pieces(watched, text, running)
    if SHARE_GROUP_STATE_TOPIC in watched.services.image.topics:
        from tailrace.broker.metrics.families.coordinators import queues

        yield from queues.pieces(watched.services.shares, text)
    if watched.node.tier is not None:
        from tailrace.broker.metrics.families import tier

        yield from tier.pieces(watched.node.tier, text)
    from tailrace.broker.metrics.families import topics

    yield from topics.pieces(watched, text)
    from tailrace.broker.metrics.families import partitions

    yield from partitions.pieces(watched, text)
    from tailrace.broker.metrics.families import clients

    yield from clients.pieces(watched, text)
