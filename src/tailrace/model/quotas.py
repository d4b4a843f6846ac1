"""Quotas of clients: for whom one may be set, and what it bounds. Names are Kafka's, as they stand on the wire.

An entity is a set of kinds with a name each, or None for the default: whoever has no quota of their own. It is written
as pairs in the order of the kinds, so that equal entities are equal tuples.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

QuotaEntity = tuple[tuple[str, str | None], ...]
Quotas = Mapping[QuotaEntity, Mapping[str, float]]

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"


class QuotaKey(NamedTuple):
    """What values it takes. All are larger than 0."""

    is_whole: bool
    maximum: float = float("inf")


# What may be set for users and client ids, and what for addresses.
CLIENT_KEYS: Mapping[str, QuotaKey] = {
    PRODUCER_BYTE_RATE: QuotaKey(is_whole=True, maximum=2.0**63),
    CONSUMER_BYTE_RATE: QuotaKey(is_whole=True, maximum=2.0**63),
    REQUEST_PERCENTAGE: QuotaKey(is_whole=False),
    CONTROLLER_MUTATION_RATE: QuotaKey(is_whole=False),
}
IP_KEYS: Mapping[str, QuotaKey] = {CONNECTION_CREATION_RATE: QuotaKey(is_whole=True, maximum=2.0**31 - 1)}


def quota_entity(pairs: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Of a kind that is named twice the last name counts, as in Kafka."""
    return tuple(sorted(dict(pairs).items()))


def describe_entity(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {name}" if name is not None else f"default {kind}" for kind, name in entity)
