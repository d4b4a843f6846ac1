"""Quotas of clients in the metadata: AlterClientQuotas, DescribeClientQuotas, and which quota holds for whom (KIP-546).

Each entry of a request succeeds or fails as a whole, independent of the others, with Kafka's codes. Three things are
refused that Kafka takes: numbers that are none (NaN, infinity), an entity that stands in a request twice (Kafka says
that it failed, and does the first of them), and host names for addresses (Kafka asks the name service, and a controller
that waits for one decides nothing meanwhile).

For a user and a client id the first of these holds that has the key; so two keys may come from two entities:

    user and client id, user and default client id, user,
    default user and client id, default user and default client id, default user,
    client id, default client id

What is counted together depends on where the quota was found: one of a user counts all connections of that user, one
of a user and a client id those of the pair. A default gives each its own count.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from math import isfinite
from typing import NamedTuple

from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    ENTITY_TYPES,
    IP,
    IP_KEYS,
    USER,
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
from tailrace.wire.apis.stored_records import ClientQuotaRecord
from tailrace.wire.schema import Message

# How much of a fraction a whole number may have: Kafka's own.
_EPSILON = 1e-6
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
            entity=[AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        )
        try:
            if times_named[entity] > 1:
                raise _invalid(f"The entity {describe_entity(entity)} stands in the request more than once.")
            records += _decide_records(view.image.client_quotas, entity, ops)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    response = AlterClientQuotasResponse(entries=list(answers.values()))
    return Result([] if request.validate_only else records, response)


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """Without a value it takes the quota away."""
    return ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=value or 0.0,
        remove=value is None,
    )


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
    return [quota_record(entity, key, value) for key, value in sorted(changes.items()) if current.get(key) != value]


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


def parse_address(text: str) -> str | None:
    """In the one form that an address has here; None if it is none. IPv4 in IPv6 is IPv4, as for Java."""
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


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
            values=[response.ValueData(key=key, value=value) for key, value in sorted(values.items())],
        )
        for entity, values in sorted(quotas.items(), key=_order)
        if fits(dict(entity))
    ]
    return response(entries=entries)


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


# ---- which one holds


class Limit(NamedTuple):
    bound: float
    # Whose use is counted together: the user, the client id or both; None where they differ.
    user: str | None
    client_id: str | None


def find_limit(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """The quota that holds for a user with a client id, if there is one."""
    for names in (
        {USER: user, CLIENT_ID: client_id},
        {USER: user, CLIENT_ID: None},
        {USER: user},
        {USER: None, CLIENT_ID: client_id},
        {USER: None, CLIENT_ID: None},
        {USER: None},
        {CLIENT_ID: client_id},
        {CLIENT_ID: None},
    ):
        bound = quotas.get(quota_entity(names.items()), {}).get(key)
        if bound is not None:
            return Limit(bound, user if USER in names else None, client_id if CLIENT_ID in names else None)
    return None


class AddressLimits:
    """How fast connections may come from addresses, as `parse_address` writes them. False while there is no limit."""

    def __init__(self, quotas: Quotas) -> None:
        self._default: float | None = None
        self._own: dict[str, float] = {}
        for entity, values in quotas.items():
            bound = values.get(CONNECTION_CREATION_RATE)
            name = dict(entity).get(IP, "")
            if bound is None or name == "":
                continue
            if name is None:
                self._default = bound
            elif (address := parse_address(name)) is not None:
                self._own.setdefault(address, bound)  # The first that was set of several ways to write one.

    def __bool__(self) -> bool:
        return self._default is not None or bool(self._own)

    def find(self, address: str) -> float | None:
        return self._own.get(address, self._default)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
