"""DescribeMirrors, an API of our own: the links of this cluster, and how far the mirrors are that are led here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.apis.mirrors import DescribeMirrorsRequest, DescribeMirrorsResponse


def handle_describe_mirrors(
    services: Services, _context: RequestContext, request: DescribeMirrorsRequest
) -> DescribeMirrorsResponse:
    return services.mirrors.describe(request.link_name)
