"""Topics with dead letters, and the letters of one of them: where each came from, how often it was tried, what failed.

No value is shown here, nor the text of an error, which may quote one: the page of the message has both, with its masks.
"""

from __future__ import annotations

from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console
from tailrace.client.admin import Admin
from tailrace.kit.letters.desk import Desk
from tailrace.kit.letters.letter import Letter
from tailrace.model.errors import KafkaError

_SUFFIX = ".dlq"
_TOPICS_MAX = 100
_LETTERS_MAX = 200
_TIMEOUT_MS = 5000


async def letters(console: Console, visit: Visit, request: Request) -> Response:
    chosen = request.query_params.get("topic", "")
    found: list[Letter] = []
    topics: list[dict[str, object]] = []
    problem = None
    try:
        names = sorted(each.name for each in await Admin(visit.cluster).topics() if each.name.endswith(_SUFFIX))
        topics = [await _count(visit, name) for name in names[:_TOPICS_MAX]]
        if chosen:
            found = await _read(visit, chosen)
    except KafkaError as error:
        problem = error.message or error.code.name
    return console.html(
        request,
        "letters.html",
        user=visit.user,
        topics=topics,
        chosen=chosen,
        letters=[_row(letter) for letter in found[:_LETTERS_MAX]],
        is_cut=len(found) > _LETTERS_MAX,
        shown_max=_LETTERS_MAX,
        problem=problem,
    )


async def _count(visit: Visit, topic: str) -> dict[str, object]:
    desk = Desk(visit.cluster, topic, timeout_ms=_TIMEOUT_MS)
    try:
        return {"name": topic, "waiting": await desk.waiting_offsets(), "problem": ""}
    except KafkaError as error:  # One that the visitor may not read hides no other.
        return {"name": topic, "waiting": None, "problem": error.message or error.code.name}
    finally:
        desk.close()


async def _read(visit: Visit, topic: str) -> list[Letter]:
    desk = Desk(visit.cluster, topic, timeout_ms=_TIMEOUT_MS)
    found: list[Letter] = []
    try:
        async with aclosing(desk.waiting()) as waiting:
            async for letter in waiting:
                found.append(letter)
                if len(found) > _LETTERS_MAX:
                    break
    finally:
        desk.close()
    return found


def _row(letter: Letter) -> dict[str, object]:
    return {
        "partition": int(letter.partition.partition),
        "offset": letter.record.offset,
        "failed_ms": letter.failed_ms,
        "group": letter.trail.group,
        "origin": letter.trail.origin,
        "attempts": letter.trail.attempts,
        "error": letter.error_class,
    }
