"""DescribeClientQuotas: what is set, from this broker's metadata. AlterClientQuotas is the controller's to decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.controller.security.quotas import describe_client_quotas

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.apis.admin import DescribeClientQuotasRequest, DescribeClientQuotasResponse


def handle_describe_client_quotas(
    services: Services, _context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    return describe_client_quotas(services.image.client_quotas, request)
