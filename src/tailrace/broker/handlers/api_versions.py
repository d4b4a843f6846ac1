"""ApiVersions: what this node serves, exactly as the catalogue says; without what needs a part that it does not have.

Version notes: from 3 on a client names its software (KIP-511), which must look like a name; the answer carries
features (KIP-584), those that may be off (level 0) from 4 on. A request in an unknown version is answered by dispatch,
in version 0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailrace.broker.roster import Greeting
from tailrace.catalogue import CATALOGUE, Api, Audience, Served
from tailrace.controller.features import KRAFT_VERSION, KRAFT_VERSION_LEVEL, SUPPORTED_FEATURES
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse
from tailrace.wire.apis.keys import ApiKey

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services

_FIRST_VERSION_WITH_LEVEL_0 = 4
# KIP-511: letters, digits, dots and hyphens, beginning and ending with a letter or digit.
_SOFTWARE = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"


def handle_api_versions(
    services: Services, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    if context.api_version >= 3 and not (
        re.fullmatch(_SOFTWARE, request.client_software_name)
        and re.fullmatch(_SOFTWARE, request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    software = f"{request.client_software_name} {request.client_software_version}".strip()
    at_ms = int(services.ports.clock.wall_ms())
    services.roster.note(context.peer, Greeting(context.client_id or "", software, at_ms))
    if services.telemetry is not None and context.api_version >= 3:
        services.telemetry.note_software(context.peer, request.client_software_name, request.client_software_version)
    image = services.image
    audience = Audience.CONTROLLERS if context.listener.is_controller else Audience.CLIENTS
    return ApiVersionsResponse(
        api_keys=[
            _advertise(api, served)
            for api in CATALOGUE.values()
            if api.key.is_advertised and (served := api.served_to(audience)) is not None and services.has(api.only_with)
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            # Older clients fail to read a range that begins at 0 (KAFKA-17011).
            if low > 0 or context.api_version >= _FIRST_VERSION_WITH_LEVEL_0
        ],
        finalized_features_epoch=image.next_offset - 1,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in {**image.features, KRAFT_VERSION: KRAFT_VERSION_LEVEL}.items()
            if level > 0
        ],
    )


def _advertise(api: Api, served: Served) -> ApiVersionsResponse.ApiVersion:
    low = served.version_min if api.advertised_min is None else api.advertised_min
    return ApiVersionsResponse.ApiVersion(api_key=api.key, min_version=low, max_version=served.version_max)


def unsupported_version_response() -> ApiVersionsResponse:
    api = CATALOGUE[ApiKey.API_VERSIONS]
    assert api.for_clients is not None, "every listener answers it"
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_advertise(api, api.for_clients)])
