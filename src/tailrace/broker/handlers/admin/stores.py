"""AlterConfigs and IncrementalAlterConfigs: the controller decides, except on what is this node's own.

Levels of the log are changed here (`loggers`) and never told to the controller. The controller does not see a broker's
files either. So a broker that is told where to find new certificates of its own tries them first, and refuses what it
could not use, with Kafka's code for that, INVALID_REQUEST. If somebody else was asked, the broker finds out when the
change is published, and goes on with what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tailrace.broker.handlers.admin.controller import handle_by_controller
from tailrace.controller.configs import alter_response, is_store, new_texts
from tailrace.controller.image import ResourceType
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services

_Request: TypeAlias = AlterConfigsRequest | IncrementalAlterConfigsRequest
_Resource: TypeAlias = AlterConfigsRequest.AlterConfigsResource | IncrementalAlterConfigsRequest.AlterConfigsResource

# Told from None, by identity.
_NOT_OURS = KafkaError(ErrorCode.NONE, "for the controller")


async def handle_alter_configs(services: Services, context: RequestContext, request: _Request) -> Message:
    outcomes = [await _try_here(services, context, request, each) for each in request.resources]
    if all(outcome is _NOT_OURS for outcome in outcomes):
        return await handle_by_controller(services, context, request)
    answer: Any = _answer(request, [None if outcome is _NOT_OURS else outcome for outcome in outcomes])
    rest: Any = [each for each, outcome in zip(request.resources, outcomes, strict=True) if outcome is _NOT_OURS]
    if rest:
        request.resources = rest
        decided: Any = await handle_by_controller(services, context, request)
        others = iter(decided.responses)
        pairs = zip(answer.responses, outcomes, strict=True)
        decided.responses = [next(others) if outcome is _NOT_OURS else own for own, outcome in pairs]
        answer = decided
    return cast("Message", answer)


async def _try_here(
    services: Services, context: RequestContext, request: _Request, resource: _Resource
) -> KafkaError | None:
    """The error of a resource that this node settles, None if it was done; _NOT_OURS of one for the controller."""
    is_logger = resource.resource_type == ResourceType.BROKER_LOGGER
    if is_logger and isinstance(resource, IncrementalAlterConfigsRequest.AlterConfigsResource):
        from tailrace.broker.handlers.admin.loggers import alter_loggers

        same = [each for each in request.resources if _key(each) == _key(resource)]
        try:
            if len(same) > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            alter_loggers(resource, context, node_id=services.node_id, validate_only=request.validate_only)
        except KafkaError as error:
            return error
        return None
    return await _try_stores(services, resource) or _NOT_OURS


def _key(resource: _Resource) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _answer(request: _Request, errors: Sequence[KafkaError | None]) -> Message:
    if isinstance(request, AlterConfigsRequest):
        return alter_response(AlterConfigsResponse, request.resources, errors)
    return alter_response(IncrementalAlterConfigsResponse, request.resources, errors)


async def _try_stores(services: Services, resource: _Resource) -> KafkaError | None:
    is_own = resource.resource_type == ResourceType.BROKER and resource.resource_name == str(services.node_id)
    if services.check_stores is None or not is_own or not any(is_store(each.name) for each in resource.configs):
        return None
    try:
        texts = new_texts(services.image, resource)
    except KafkaError:
        return None  # The controller says what is wrong.
    try:
        await services.check_stores(texts)
    except KafkaError as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, error.message)
    return None
