"""The messages of a topic: read, followed, downloaded (`looking`), written and sent again (`writing`), and how to get
at them elsewhere (`commands`). `rows` makes of a record what is shown of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute

from tailrace.apps.console.pages.messages.looking import download, message, messages, tail
from tailrace.apps.console.pages.messages.writing import produce, send_again
from tailrace.apps.console.web import Console, change, show


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/topics/{name}/messages", messages, console),
        show("/topics/{name}/messages/tail", tail, console),
        show("/topics/{name}/messages/download", download, console),
        show("/topics/{name}/messages/{partition:int}/{offset:int}", message, console),
        change("/topics/{name}/messages", produce, console),
        change("/topics/{name}/messages/{partition:int}/{offset:int}/again", send_again, console),
    )
