"""Dead letters of applications (`looking`): where they wait, and why."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from tailrace.apps.console.pages.letters.looking import letters
from tailrace.apps.console.web import Console, show


def routes(console: Console) -> Sequence[BaseRoute]:
    return (show("/letters", letters, console),)
