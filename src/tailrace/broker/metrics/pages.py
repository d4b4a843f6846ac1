"""Which page a question gets, and who may see it.

/metrics                        to peers of this machine, or by TLS to who logs in
/health/live, ready, cluster    to everyone: 200 or 503, with the reason as JSON
"""

from __future__ import annotations

from asyncio import Future, ensure_future, get_running_loop
from collections.abc import Callable, Iterator
from itertools import islice
from json import dumps
from typing import TYPE_CHECKING

from tailrace.broker.metrics import health
from tailrace.broker.metrics.families import pieces
from tailrace.broker.metrics.http import Asker, Page, Question, plain_page
from tailrace.broker.serving.acceptor import host_of
from tailrace.model.acls import Kind, Operation
from tailrace.model.metrics.text import OPEN_METRICS_TYPE, PROMETHEUS_TYPE, Text

if TYPE_CHECKING:
    from tailrace.broker.metrics.health import Health
    from tailrace.broker.metrics.logins import Logins
    from tailrace.broker.metrics.watched import Watched

Give = Callable[[Page], None]

_SLICE_STEPS = 64
_JSON = "application/json; charset=utf-8"
_WHERE = "there are /metrics, /health/live, /health/ready and /health/cluster"
_NOT_HERE = "metrics are for this machine alone, unless metrics.listeners has an HTTPS address and a user logs in there"


class Pages:
    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._logins: Logins | None = None  # Once somebody logs in.
        self._under_way: set[Future[None]] = set()  # Held, for the loop keeps only weak references to its tasks.

    def answer(self, question: Question, asker: Asker, give: Give) -> None:
        watched = self._watched
        match question.path:
            case "/metrics":
                self._give_metrics(question, asker, give)
            case "/health/live":
                give(_health_page(health.live(watched)))
            case "/health/ready":
                give(_health_page(health.ready(watched)))
            case "/health/cluster":
                _look_on(health.cluster(watched), give)
            case _:
                give(plain_page(404, _WHERE))

    def _give_metrics(self, question: Question, asker: Asker, give: Give) -> None:
        if not self._watched.node.is_running:
            give(plain_page(503, "this node is starting, or stopping"))
        elif asker.is_encrypted:
            task = ensure_future(self._let_in(question, asker, give))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        elif not _is_local(asker.peer):
            give(plain_page(403, _NOT_HERE))
        else:
            give(self._metrics_page(question))

    async def _let_in(self, question: Question, asker: Asker, give: Give) -> None:
        from tailrace.broker.metrics.logins import Logins

        if self._logins is None:
            self._logins = Logins(self._watched.services)
        principal = await self._logins.find(question.headers.get("authorization", ""))
        access = self._watched.services.access
        if principal is None:
            give(plain_page(401, "log in as a user of the cluster", ("WWW-Authenticate", 'Basic realm="tailrace"')))
        elif access is not None and not access.may(
            asker._replace(principal=principal), Operation.DESCRIBE, Kind.CLUSTER
        ):
            give(plain_page(403, f"{principal} may not describe the cluster: see tailrace acl add"))
        else:
            give(self._metrics_page(question))

    def _metrics_page(self, question: Question) -> Page:
        is_open_metrics = "application/openmetrics-text" in question.headers.get("accept", "")
        has_plain_names = self._watched.services.config.metrics_kafka_names == "plain"
        text = Text(is_open_metrics=is_open_metrics, has_plain_names=has_plain_names)
        return Page(200, OPEN_METRICS_TYPE if is_open_metrics else PROMETHEUS_TYPE, pieces(self._watched, text))


def _look_on(steps: Iterator[Health | None], give: Give) -> None:
    """A slice of looking at all partitions; others have their turn, and then it goes on."""
    for found in islice(steps, _SLICE_STEPS):
        if found is not None:
            give(_health_page(found))
            return
    get_running_loop().call_soon(_look_on, steps, give)


def _health_page(found: Health) -> Page:
    return Page(200 if found.is_good else 503, _JSON, iter([dumps(found.facts) + "\n"]))


def _is_local(peer: str) -> bool:
    host = host_of(peer).strip("[]")
    return host.startswith("127.") or host in ("::1", "::ffff:127.0.0.1")
