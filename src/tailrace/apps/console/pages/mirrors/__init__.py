"""Mirrors of other clusters: links and their topics (`looking`)."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from tailrace.apps.console.pages.mirrors.looking import mirrors
from tailrace.apps.console.web import Console, show


def routes(console: Console) -> Sequence[BaseRoute]:
    return (show("/mirrors", mirrors, console),)
