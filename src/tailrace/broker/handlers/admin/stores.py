"""AlterConfigs and IncrementalAlterConfigs: the controller decides, which does not see a broker's files.

So a broker that is told where to find new certificates of its own tries them first, and refuses what it could not use,
with Kafka's code for that, INVALID_REQUEST. If somebody else was asked, the broker finds out when the change is
published, and goes on with what it has.
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


async def handle_alter_configs(services: Services, context: RequestContext, request: _Request) -> Message:
    errors = [await _try_stores(services, each) for each in request.resources]
    if not any(errors):
        return await handle_by_controller(services, context, request)
    answer: Any = _answer(request, errors)
    rest: Any = [each for each, error in zip(request.resources, errors, strict=True) if error is None]
    if rest:
        request.resources = rest
        decided: Any = await handle_by_controller(services, context, request)
        others = iter(decided.responses)
        pairs = zip(answer.responses, errors, strict=True)
        decided.responses = [next(others) if error is None else own for own, error in pairs]
        answer = decided
    return cast("Message", answer)


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
