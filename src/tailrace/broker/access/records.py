"""Who may write and read records.

Produce asks WRITE of each topic, and WRITE of the transactional id if its batches are transactional: an id in a request
with plain batches means nothing. An id of a topic that is unknown is not judged: the handler says so.

Fetch asks READ of each topic, or CLUSTER_ACTION of a follower. A session remembers what a client has asked for, and a
fetch may be parked: so it is not judged once, when it comes, but each time that it reads. Whoever loses a right is told
so by the next answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.access.access import refusal
from tailrace.broker.access.judging import access_of, ask, change_answer, keep_allowed
from tailrace.broker.handlers.fetch import FetchAttempt
from tailrace.broker.handlers.produce import is_transactional
from tailrace.model.acls import CLUSTER_NAME, Kind, Operation
from tailrace.model.ids import Uuid

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.broker.sessions import FetchKey
    from tailrace.replica.partition import Partition
    from tailrace.wire.apis.data import FetchRequest, ProduceRequest

# Looked up once: it costs a call of Python each time.
_WRITE, _TOPIC = Operation.WRITE, Kind.TOPIC
_FIRST_FETCH_WITH_TOPIC_IDS = 13


def judge_produce(services: Services, context: RequestContext, request: ProduceRequest) -> ProduceRequest:
    if _has_transactional(request):
        transactional_id = request.transactional_id
        if transactional_id is None or not ask(
            services, context, Operation.WRITE, Kind.TRANSACTIONAL_ID, transactional_id
        ):
            raise refusal(context, Operation.WRITE, Kind.TRANSACTIONAL_ID)
    may, api_key = access_of(services).may, context.api_key
    refused: set[int] = set()
    for topic in request.topic_data:
        name = topic.name or services.image.topic_names.get(Uuid(topic.topic_id))
        if name is not None and not may(context, _WRITE, _TOPIC, name, api_key=api_key):
            refused.add(id(topic))
    return _without(context, request, refused) if refused else request


def _without(context: RequestContext, request: ProduceRequest, refused: set[int]) -> ProduceRequest:
    """A client that wants no answer can be told by the end of its connection alone, once the rest is written."""
    error = refusal(context, Operation.WRITE, Kind.TOPIC)
    allowed = [topic for topic in request.topic_data if id(topic) not in refused]
    if request.acks == 0 and allowed:
        request.topic_data = allowed
        change_answer(context, lambda answer: answer)
        return request
    kept: ProduceRequest = keep_allowed(
        context, request, "topic_data", lambda topic: error if id(topic) in refused else None
    )
    return kept


def _has_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for each in topic.partition_data:
            if isinstance(each.records, memoryview) and is_transactional(each.records):
                return True
    return False


def judge_fetch(_services: Services, _context: RequestContext, request: FetchRequest) -> FetchRequest:
    """By `GuardedFetch`, where it reads."""
    return request


class GuardedFetch(FetchAttempt):
    """Looks at what may be read whenever it reads."""

    def _find(self, key: FetchKey, fetch: FetchRequest.FetchPartition) -> Partition:
        name = key.topic
        if self._version >= _FIRST_FETCH_WITH_TOPIC_IDS:
            name = self._services.replicas.topic_name(key.topic_id)
        if self._is_follower:
            operation, kind, resource = Operation.CLUSTER_ACTION, Kind.CLUSTER, CLUSTER_NAME
        else:
            operation, kind, resource = Operation.READ, Kind.TOPIC, name
        if not ask(self._services, self._context, operation, kind, resource):
            raise refusal(self._context, Operation.READ, Kind.TOPIC)
        return super()._find(key, fetch)
