"""Links to other clusters: which topics are mirrored, how far they are behind, and what keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console
from tailrace.client.mirrors.admin import DescribedLink, MirrorAdmin, MirroredTopic
from tailrace.model.errors import ErrorCode, KafkaError

_SHOWN_MAX = 200


async def mirrors(console: Console, visit: Visit, request: Request) -> Response:
    links: Sequence[DescribedLink] = ()
    problem = None
    try:
        links = [link for _, link in sorted((await MirrorAdmin(visit.cluster).describe()).items())]
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
        shown_max=_SHOWN_MAX,
        problem=problem,
    )


def _row(link: DescribedLink, topic: MirroredTopic) -> dict[str, object]:
    stopped = [each.problem for each in topic.partitions.values() if each.problem is not None]
    return {
        "link": link.name,
        "name": topic.name,
        "source": topic.source_topic,
        "state": topic.state,
        "partitions": topic.partition_count,
        "lag": topic.lag if topic.state != "open" else None,
        "behind_ms": topic.behind_ms if topic.state != "open" else None,
        "problem": stopped[0] if stopped else "",
    }
