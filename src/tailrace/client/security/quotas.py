"""Quotas of clients, as an administrator sees and sets them (KIP-546). Works with any Kafka since 2.6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.quotas import QuotaEntity, quota_entity
from tailrace.wire.apis.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_EXACT, _DEFAULT = 0, 1


class SetQuotas(NamedTuple):
    entity: QuotaEntity
    values: Mapping[str, float]  # By key, such as producer_byte_rate.


class QuotaAdmin:
    """Each call raises KafkaError with the broker's own message if the broker refuses."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def quotas(self, entity: QuotaEntity = (), *, is_strict: bool = False) -> list[SetQuotas]:
        """All that are set for an entity, and for those that have more kinds beside, unless `is_strict`; without an
        entity all."""
        components = [
            DescribeClientQuotasRequest.ComponentData(
                entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
            )
            for kind, name in entity
        ]
        connection = await self._cluster.any_connection()
        request = DescribeClientQuotasRequest(components=components, strict=is_strict)
        response = await connection.call(request, DescribeClientQuotasResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), response.error_message or "")
        found = [
            SetQuotas(
                quota_entity((part.entity_type, part.entity_name) for part in entry.entity),
                {each.key: each.value for each in sorted(entry.values, key=lambda value: value.key)},
            )
            for entry in response.entries or ()
        ]
        return sorted(found, key=lambda each: [(kind, name or "") for kind, name in each.entity])

    async def alter(
        self, entity: QuotaEntity, values: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """None takes a quota away."""
        request = AlterClientQuotasRequest
        entry = request.EntryData(
            entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
        )
        connection = await self._cluster.any_connection()
        response = await connection.call(
            request(entries=[entry], validate_only=validate_only), AlterClientQuotasResponse
        )
        for answer in response.entries:
            if answer.error_code:
                raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")
