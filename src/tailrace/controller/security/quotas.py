"""Quotas of clients in the metadata: AlterClientQuotas and DescribeClientQuotas (KIP-546).

Each entry of a request succeeds or fails as a whole, independent of the others, with Kafka's codes. Three things are
refused that Kafka takes: numbers that are none (NaN, infinity), an entity that stands in a request twice (Kafka says
that it failed, and does the first of them), and host names for addresses (Kafka asks the name service, and a controller
that waits for one decides nothing meanwhile).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isfinite

from tailrace.controller.security.limits import parse_address, quota_record
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.quotas import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    ENTITY_TYPES,
    IP,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaKey,
    Quotas,
    describe_entity,
    quota_entity,
)
from tailrace.wire.apis.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tailrace.wire.schema import Message

# How much of a fraction a whole number may have: Kafka's own.
_EPSILON = 1e-6
# Kafka keeps an entity's values in a hash table, and its users have come to compare answers as they are. Changes that
# come together go in in this order,
_ORDER_OF_CHANGES = (REQUEST_PERCENTAGE, PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE)
# and stand in these places of a table for up to three values, or for more. In one place the older is first.
_FEW = 3
_PLACES_OF_FEW = {CONSUMER_BYTE_RATE: 0, CONTROLLER_MUTATION_RATE: 2, PRODUCER_BYTE_RATE: 3, REQUEST_PERCENTAGE: 3}
_PLACES_OF_MORE = {PRODUCER_BYTE_RATE: 3, CONSUMER_BYTE_RATE: 4, CONTROLLER_MUTATION_RATE: 6, REQUEST_PERCENTAGE: 7}
_MATCH_EXACT, _MATCH_DEFAULT, _MATCH_ANY = 0, 1, 2


# ---- changing them


def alter_client_quotas(view: View, request: AlterClientQuotasRequest) -> Result:
    asked = [(_entity_of(entry), entry.ops) for entry in request.entries]
    times_named = Counter(entity for entity, _ in asked)
    records: list[Message] = []
    answers: dict[QuotaEntity, AlterClientQuotasResponse.EntryData] = {}
    for entity, ops in asked:
        if entity in answers:
            continue
        answer = answers[entity] = AlterClientQuotasResponse.EntryData(
            error_message=None,
            entity=[AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        )
        try:
            if times_named[entity] > 1:
                raise _invalid(f"The entity {describe_entity(entity)} stands in the request more than once.")
            records += _decide_records(view.image.client_quotas, entity, ops)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    response = AlterClientQuotasResponse(entries=list(answers.values()))
    return Result([] if request.validate_only else records, response)


def _entity_of(entry: AlterClientQuotasRequest.EntryData) -> QuotaEntity:
    return quota_entity((part.entity_type, part.entity_name) for part in entry.entity)


def _decide_records(
    quotas: Quotas, entity: QuotaEntity, ops: Sequence[AlterClientQuotasRequest.OpData]
) -> list[Message]:
    keys = _keys_of(entity)
    current = quotas.get(entity, {})
    changes: dict[str, float | None] = {}
    for op in ops:
        if op.key in changes:
            raise _invalid(f"The key {op.key} stands more than once in the change of {describe_entity(entity)}.")
        if not op.remove:
            _check_value(keys, op.key, op.value)
        changes[op.key] = None if op.remove else op.value
    ordered = sorted(changes, key=lambda key: _ORDER_OF_CHANGES.index(key) if key in _ORDER_OF_CHANGES else 0)
    return [quota_record(entity, key, changes[key]) for key in ordered if current.get(key) != changes[key]]


def _keys_of(entity: QuotaEntity) -> dict[str, QuotaKey]:
    """What may be set for an entity, if there may be one such."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return dict(CLIENT_KEYS)
    if len(names) > 1:
        raise _invalid("Invalid quota entity combination: an ip is not combined with a user or a client-id.")
    if names[IP] is not None and parse_address(names[IP] or "") is None:
        raise _invalid(f"{names[IP]} is not an IP address. Host names are not looked up: give the address.")
    return dict(IP_KEYS)


def _check_value(keys: dict[str, QuotaKey], key: str, value: float) -> None:
    rule = keys.get(key)
    if rule is None:
        raise _invalid(f"Invalid configuration key {key}. Those of this entity are {', '.join(keys)}.")
    if not isfinite(value):
        raise _invalid(f"Quota {key} must be a number, not {value}")
    if value <= 0.0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if value > rule.maximum:
        raise _invalid(f"Quota {key} must be at most {rule.maximum:.0f}")
    if rule.is_whole and value % 1.0 > _EPSILON:
        raise _invalid(f"{key} cannot be a fractional value.")


# ---- showing them


def describe_client_quotas(quotas: Quotas, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Raises KafkaError if the filter is wrong."""
    fits = _filter(request)
    response = DescribeClientQuotasResponse
    entries = [
        response.EntryData(
            entity=[response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[response.ValueData(key=key, value=values[key]) for key in _in_kafkas_order(values)],
        )
        for entity, values in sorted(quotas.items(), key=_order)
        if fits(dict(entity))
    ]
    return response(entries=entries)


def _in_kafkas_order(values: Mapping[str, float]) -> list[str]:
    places = _PLACES_OF_FEW if len(values) <= _FEW else _PLACES_OF_MORE
    return sorted(values, key=lambda key: places.get(key, 0))


def _order(item: tuple[QuotaEntity, object]) -> tuple[tuple[str, str], ...]:
    return tuple((kind, name or "") for kind, name in item[0])


def _filter(request: DescribeClientQuotasRequest) -> Callable[[dict[str, str | None]], bool]:
    """Whether an entity is asked for. Kinds that are not named may be there, unless the request is strict."""
    names: dict[str, str | None] = {}
    any_name: set[str] = set()
    for component in request.components:
        kind, match = component.entity_type, component.match
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in names or kind in any_name:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in (_MATCH_EXACT, _MATCH_DEFAULT, _MATCH_ANY):
            raise _invalid(f"Unknown match type {component.match_type}")
        if (match is None) == (component.match_type == _MATCH_EXACT):
            raise _invalid("A name to match belongs to match type 0 (exact), and to no other.")
        if component.match_type == _MATCH_ANY:
            any_name.add(kind)
        else:
            names[kind] = match
    asked = names.keys() | any_name
    if IP in asked and len(asked) > 1:
        raise _invalid("Invalid entity filter: ip is not combined with user or client-id.")
    if request.strict and not asked:
        return lambda _entity: False

    def fits(entity: dict[str, str | None]) -> bool:
        if request.strict and entity.keys() != asked:
            return False
        return asked <= entity.keys() and all(entity[kind] == name for kind, name in names.items())

    return fits


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
