"""Who may see, create and delete topics.

A topic that may not be described is hidden: left out of lists, and refused by name whether it exists or not. Its id is
not resolved. What is hidden is never created either: DESCRIBE is asked before auto-creation, CREATE after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.broker.access.access import refusal
from tailrace.broker.access.judging import ask, change_answer, keep_allowed, may_by_cluster, name_of
from tailrace.model.acls import Kind, Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import INTERNAL_TOPICS, ZERO_UUID, Uuid
from tailrace.wire.apis.data import MetadataResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.apis.admin import (
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DescribeTopicPartitionsRequest,
    )
    from tailrace.wire.apis.data import MetadataRequest

_ResponseTopic = MetadataResponse.MetadataResponseTopic
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_FIRST_DELETION_BY_ID = 6


def judge_metadata(services: Services, context: RequestContext, request: MetadataRequest) -> MetadataRequest:
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        change_answer(context, lambda answer: _without_hidden(services, context, answer))
        return request
    allowed: list[MetadataRequest.MetadataRequestTopic] = []
    refused: list[MetadataResponse.MetadataResponseTopic] = []
    for topic in asked:
        told = _judge_topic(services, context, request, topic)
        if told is None:
            allowed.append(topic)
        else:
            refused.append(told)
    if refused:
        request.topics = allowed
        # An empty list asks for all topics in version 0: what is told of them then is not to be seen.
        asks_for_all = context.api_version == 0 and not allowed
        change_answer(context, lambda answer: _with_refused(answer, refused, replaces=asks_for_all))
    return request


def _without_hidden(services: Services, context: RequestContext, answer: MetadataResponse) -> MetadataResponse:
    answer.topics = [
        topic
        for topic in answer.topics
        if ask(services, context, Operation.DESCRIBE, Kind.TOPIC, topic.name or "", is_logged=False)
    ]
    return answer


def _with_refused(
    answer: MetadataResponse, refused: list[MetadataResponse.MetadataResponseTopic], *, replaces: bool
) -> MetadataResponse:
    answer.topics = refused if replaces else [*answer.topics, *refused]
    return answer


def _judge_topic(
    services: Services, context: RequestContext, request: MetadataRequest, topic: MetadataRequest.MetadataRequestTopic
) -> MetadataResponse.MetadataResponseTopic | None:
    image, name = services.image, topic.name
    if topic.topic_id != ZERO_UUID:
        known = image.topic_names.get(Uuid(topic.topic_id))
        if known is None or ask(services, context, Operation.DESCRIBE, Kind.TOPIC, known):
            return None
        return _ResponseTopic(error_code=_REFUSED, name=None, topic_id=topic.topic_id)
    if name is None:
        return None
    if not ask(services, context, Operation.DESCRIBE, Kind.TOPIC, name):
        return _ResponseTopic(error_code=_REFUSED, name=name)
    would_create = request.allow_auto_topic_creation and services.config.auto_create_topics_enable
    if (
        name in image.topics
        or not would_create
        or may_by_cluster(services, context, Operation.CREATE)
        or ask(services, context, Operation.CREATE, Kind.TOPIC, name)
    ):
        return None
    return _ResponseTopic(error_code=_REFUSED, name=name, is_internal=name in INTERNAL_TOPICS)


def judge_describe_topic_partitions(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsRequest:
    """Of those that are named. Of all topics the handler asks itself, for it stops when it has enough."""
    if not request.topics:
        return request
    cursor, error = request.cursor, refusal(context, Operation.DESCRIBE, Kind.TOPIC)
    if cursor is not None and any(topic.name == cursor.topic_name for topic in request.topics):
        request.topics = [topic for topic in request.topics if topic.name >= cursor.topic_name]
        if not ask(services, context, Operation.DESCRIBE, Kind.TOPIC, cursor.topic_name):
            request.cursor = None  # There is nothing to go on with in a topic that is refused.

    def judge(topic: Any) -> KafkaError | None:
        return None if ask(services, context, Operation.DESCRIBE, Kind.TOPIC, topic.name) else error

    kept: DescribeTopicPartitionsRequest = keep_allowed(context, request, "topics", judge)
    return kept


def judge_created_settings(
    services: Services, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsRequest:
    """What settings a new topic has is told to those who may ask for them."""

    def hide(answer: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in answer.topics:
            if not topic.error_code and not ask(
                services, context, Operation.DESCRIBE_CONFIGS, Kind.TOPIC, topic.name, is_logged=False
            ):
                topic.topic_config_error_code = int(_REFUSED)
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        return answer

    change_answer(context, hide)
    return request


def judge_delete_topics(
    services: Services, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsRequest:
    if may_by_cluster(services, context, Operation.DELETE):
        return request
    error = refusal(context, Operation.DELETE, Kind.TOPIC)

    def judge(topic: Any) -> KafkaError | None:
        if isinstance(topic, str):
            return None if _may_delete(services, context, topic) else error
        name = name_of(services, topic, "name")
        if name is None or _may_delete(services, context, name):
            return None
        if topic.name is None and ask(services, context, Operation.DESCRIBE, Kind.TOPIC, name, is_logged=False):
            topic.name = name  # Who may describe it is told the name that the id has.
        return error

    array = "topics" if context.api_version >= _FIRST_DELETION_BY_ID else "topic_names"
    kept: DeleteTopicsRequest = keep_allowed(context, request, array, judge)
    return kept


def _may_delete(services: Services, context: RequestContext, name: str) -> bool:
    """One that may be described and is not there is let through: the handler says so."""
    if not ask(services, context, Operation.DESCRIBE, Kind.TOPIC, name):
        return False
    return name not in services.image.topics or ask(services, context, Operation.DELETE, Kind.TOPIC, name)
