"""What is told, by subject. Each module has a generator of pieces of text, which is left after any of them for a while:
a piece takes some ten microseconds, however many partitions there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families import (
    clients,
    controller,
    node,
    partitions,
    quorum,
    replicas,
    requests,
    topics,
    warnings,
)
from tailrace.broker.metrics.families.coordinators import groups, transactions

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    """All that there is to tell of a node."""
    yield from node.pieces(watched, text)
    yield from requests.pieces(watched, text)
    yield from quorum.pieces(watched, text)
    if watched.roles.is_controller:
        yield from controller.pieces(watched, text)
    if watched.roles.is_broker:
        yield from replicas.pieces(watched, text)
        yield from groups.pieces(watched, text)
        yield from transactions.pieces(watched, text)
        yield from topics.pieces(watched, text)
        yield from partitions.pieces(watched, text)
        yield from clients.pieces(watched, text)
    yield from warnings.pieces(watched, text)
    yield text.end()
