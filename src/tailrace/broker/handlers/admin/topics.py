"""CreateTopics, DeleteTopics, CreatePartitions: the controller decides, the answer waits until it is durable.

A request that fails as a whole, as when the metadata log cannot be written, is told so for each of its topics, since
these responses have no other place for an error.

Version notes: CreateTopics 5 adds what the topic got (partitions, replicas, settings), 7 its id. DeleteTopics 6 takes
ids; before version 3 a disabled deletion is INVALID_REQUEST (KIP-322).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.context import RequestContext


async def handle_create_topics(
    broker: Broker, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    try:
        return cast("CreateTopicsResponse", await broker.submit(context, request))
    except KafkaError as error:
        result = CreateTopicsResponse.CreatableTopicResult
        failed = [
            result(name=topic.name, error_code=error.code, error_message=error.message) for topic in request.topics
        ]
        return CreateTopicsResponse(topics=failed)


async def handle_delete_topics(
    broker: Broker, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    try:
        return cast("DeleteTopicsResponse", await broker.submit(context, request))
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.TOPIC_DELETION_DISABLED and context.api_version < 3:
            code = ErrorCode.INVALID_REQUEST
        result = DeleteTopicsResponse.DeletableTopicResult
        failed = [result(name=name, error_code=code, error_message=error.message) for name in request.topic_names]
        failed += [
            result(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=error.message)
            for topic in request.topics
        ]
        return DeleteTopicsResponse(responses=failed)


async def handle_create_partitions(
    broker: Broker, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    try:
        return cast("CreatePartitionsResponse", await broker.submit(context, request))
    except KafkaError as error:
        result = CreatePartitionsResponse.CreatePartitionsTopicResult
        failed = [
            result(name=topic.name, error_code=error.code, error_message=error.message) for topic in request.topics
        ]
        return CreatePartitionsResponse(results=failed)
