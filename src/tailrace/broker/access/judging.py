"""What the catalogue declares of an API, as steps before its handler.

A need that is about the whole (the cluster, one group, one transactional id) refuses the whole. One about items takes
those out that are refused; they are answered as the API would be if it were refused with them alone (`failures`), and
that is joined to the handler's answer. If nothing is left the handler is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, cast

from tailrace.broker.access.access import Access, refusal
from tailrace.broker.context import AnsweredError
from tailrace.broker.failures import refuse
from tailrace.catalogue import load_judge
from tailrace.columns import Asks, Need
from tailrace.model.acls import Kind, Operation
from tailrace.model.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.model.errors import ErrorCode, KafkaError

Step = Callable[["Services", "RequestContext", Any], Any]
# Says why an item is refused; None if it is not.
Judge = Callable[[Any], "KafkaError | None"]

_ITEMS_THEMSELVES = "[]"


def steps_for(asks: Asks) -> tuple[Step, ...]:
    return tuple(load_judge(each) if isinstance(each, str) else _step_for(each) for each in asks)


def _step_for(need: Need) -> Step:
    if "." in need.names or need.names.endswith(_ITEMS_THEMSELVES):
        return _ItemsStep(need)
    return _WholeStep(need)


class _WholeStep:
    def __init__(self, need: Need) -> None:
        self._need = need

    def __call__(self, services: Services, context: RequestContext, request: Any) -> Any:
        need = self._need
        if may_by_cluster(services, context, need.or_cluster):
            return request
        if not need.names:
            require(services, context, need.operation, need.kind)
        else:
            require(services, context, need.operation, need.kind, getattr(request, need.names) or "")
        return request


class _ItemsStep:
    def __init__(self, need: Need) -> None:
        self._need = need
        array, _, self._field = need.names.partition(".")
        self._array = array.removesuffix(_ITEMS_THEMSELVES)

    def __call__(self, services: Services, context: RequestContext, request: Any) -> Any:
        need, items = self._need, getattr(request, self._array)
        if not items or may_by_cluster(services, context, need.or_cluster):
            return request

        may = access_of(services).may
        refused: set[int] = set()
        for item in items:
            name = name_of(services, item, self._field)
            if name is not None and not may(context, need.operation, need.kind, name, api_key=context.api_key):
                refused.add(id(item))
        if not refused:
            return request
        error = refusal(context, need.operation, need.kind)
        return keep_allowed(context, request, self._array, lambda item: error if id(item) in refused else None)


def name_of(services: Services, item: Any, field: str) -> str | None:
    """None for an id that is unknown."""
    name = getattr(item, field) if field else item
    if not name and getattr(item, "topic_id", ZERO_UUID) != ZERO_UUID:
        return services.image.topic_names.get(Uuid(item.topic_id))
    return cast("str", name or "")


def keep_allowed(context: RequestContext, request: Any, array: str, judge: Judge) -> Any:
    """The request without the items that are refused; what they are told is joined to the answer, or is the answer if
    no item is left."""
    allowed: list[Any] = []
    refused: dict[ErrorCode, tuple[KafkaError, list[Any]]] = {}
    for item in getattr(request, array):
        error = judge(item)
        if error is None:
            allowed.append(item)
        else:
            refused.setdefault(error.code, (error, []))[1].append(item)
    if not refused:
        return request
    told = [refuse_items(context, request, array, items, error) for error, items in refused.values()]
    if not allowed:
        for each in told[1:]:
            _append(told[0], each)
        raise AnsweredError(told[0])
    setattr(request, array, allowed)
    for each in told:
        join(context, each)
    return request


def refuse_items(context: RequestContext, request: Any, array: str, items: Sequence[Any], error: KafkaError) -> Any:
    """What is told of these items alone."""
    about = copy(request)
    setattr(about, array, items)
    return refuse(about, context.api_version, error)


def join(context: RequestContext, told: Any) -> None:
    """The items of `told` stand behind those of the answer."""
    change_answer(context, lambda answer: _append(answer, told))


def _append(answer: Any, told: Any) -> Any:
    for field in told.fields:
        items = getattr(told, field.name)
        if field.kind == "array" and items:
            setattr(answer, field.name, [*(getattr(answer, field.name) or ()), *items])
    return answer


def change_answer(context: RequestContext, change: Callable[[Any], Any]) -> None:
    context.joins = (*context.joins, change)


# ---- asking, for judges


def access_of(services: Services) -> Access:
    assert services.access is not None, "judges are asked where there is an authorizer"
    return services.access


def ask(
    services: Services, context: RequestContext, operation: Operation, kind: Kind, name: str, *, is_logged: bool = True
) -> bool:
    return access_of(services).may(context, operation, kind, name, api_key=context.api_key, is_logged=is_logged)


def may_by_cluster(services: Services, context: RequestContext, operation: Operation | None) -> bool:
    """Whether what is allowed on the cluster is enough. If not, it is no denial: there is another way."""
    return operation is not None and access_of(services).may(context, operation, Kind.CLUSTER, is_logged=False)


def require(
    services: Services, context: RequestContext, operation: Operation, kind: Kind, name: str | None = None
) -> None:
    """Raises KafkaError. Without a name: on the cluster."""
    names = () if name is None else (name,)
    if not access_of(services).may(context, operation, kind, *names, api_key=context.api_key):
        raise refusal(context, operation, kind)
