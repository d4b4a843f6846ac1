"""What the gateway says of itself: that it is there, and what it takes."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.responses import Response

from tailrace.apps.gateway.web import Call, Operation, answer


async def _root(call: Call) -> Response:
    """Where to go on, for whoever looks."""
    return answer({"clusters": call.url(), "openapi": f"{call.base}/openapi.json"})


async def _openapi(call: Call) -> Response:
    del call
    return answer(_document())


@cache
def _document() -> dict[str, Any]:
    from tailrace.apps.gateway.app import OPERATIONS as ALL
    from tailrace.apps.gateway.openapi import describe

    return describe(ALL)


OPERATIONS = (
    Operation("GET", "/", _root, "Where to go on", answer="Root"),
    Operation("GET", "/openapi.json", _openapi, "This document", answer="Any"),
)
