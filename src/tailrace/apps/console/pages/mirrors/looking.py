"""Links to other clusters: which topics are mirrored, how far they are behind, and what keeps them; and the topics of
this cluster that another one has taken over.

The state of a topic is that of the metadata, but for two that only its leaders know: a partition has `stopped` until an
operator decides, and a topic that was opened is `opening` until each leader takes records.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console
from tailrace.client.mirrors.admin import DescribedLink, MirrorAdmin, MirroredTopic
from tailrace.model.errors import ErrorCode, KafkaError

_SHOWN_MAX = 200
# As a mark tells them: what goes well, what waits for somebody, and what is no mirror any more.
_LOOKS = {"mirroring": "good", "stopped": "warn", "promoting": "warn", "cutting": "warn", "opening": "warn"}


async def mirrors(console: Console, visit: Visit, request: Request) -> Response:
    links: Sequence[DescribedLink] = ()
    closed: list[tuple[str, str]] = []
    problem = None
    try:
        admin = MirrorAdmin(visit.cluster)
        links = [link for _, link in sorted((await admin.describe()).items())]
        closed = sorted((await admin.closed()).items())
    except KafkaError as error:
        # Brokers of another make close the connection over a request that they do not know.
        is_foreign = error.code is ErrorCode.NETWORK_EXCEPTION
        problem = "Brokers do not tell of mirrors: they may be of another Kafka." if is_foreign else error.message
    rows = [_row(link, topic) for link in links for topic in link.topics.values()]
    return console.html(
        request,
        "mirrors.html",
        user=visit.user,
        links=[
            {
                "name": link.name,
                "source": link.source_cluster_id,
                "bootstrap": link.settings.get("bootstrap.servers", ""),
                "is_paused": link.is_paused,
                "problems": link.problems,
            }
            for link in links
        ],
        topics=rows[:_SHOWN_MAX],
        count=len(rows),
        closed=closed[:_SHOWN_MAX],
        closed_count=len(closed),
        shown_max=_SHOWN_MAX,
        problem=problem,
    )


def _row(link: DescribedLink, topic: MirroredTopic) -> dict[str, object]:
    state = _state(topic)
    return {
        "link": link.name,
        "name": topic.name,
        "source": topic.source_topic,
        "state": state,
        "look": _LOOKS.get(state, "none"),
        "partitions": topic.partition_count,
        "lag": topic.lag if not topic.is_open else None,
        "behind_ms": topic.behind_ms if not topic.is_open else None,
        "problem": _problem(link, topic),
    }


def _state(topic: MirroredTopic) -> str:
    if any(each.is_stopped for each in topic.partitions.values()) and topic.state == "mirroring":
        return "stopped"
    if topic.is_open and any(each.opened_offset < 0 for each in topic.partitions.values()):
        return "opening"
    return topic.state


def _problem(link: DescribedLink, topic: MirroredTopic) -> str:
    """What a promote waits for; else that of one partition, of those that have stopped if there are any."""
    about = f"promote of {topic.name}: "
    for problem in link.problems:
        if problem.startswith(about):
            return problem.removeprefix(about)
    found = [
        (not each.is_stopped, index, each.problem)
        for index, each in topic.partitions.items()
        if each.problem is not None
    ]
    if not found:
        missing = topic.partition_count - len(topic.partitions)
        return f"leaders of {missing} partitions do not answer" if missing else ""
    _, index, problem = min(found)
    others = f" ({len(found)} partitions have problems)" if len(found) > 1 else ""
    return f"partition {index}: {problem}{others}"
