"""Groups: those that read topics (`reading`), and share groups as queues (`queues`)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from tailrace.apps.console.pages.groups import queues, reading
from tailrace.apps.console.web import Console


def routes(console: Console) -> Sequence[BaseRoute]:
    return (*reading.routes(console), *queues.routes(console))
