"""ApiVersions: what this broker serves, exactly as the table of handlers says.

Version notes: from 3 on a client names its software (KIP-511), which must look like a name; the answer carries
features (KIP-584), those that may be off (level 0) from 4 on. A request in an unknown version is answered by dispatch,
in version 0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailrace.broker.handlers import ADVERTISED_VERSION_MIN, CONTROLLER_HANDLERS, HANDLERS
from tailrace.controller.features import KRAFT_VERSION, KRAFT_VERSION_LEVEL, SUPPORTED_FEATURES
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.context import RequestContext

_API_VERSIONS = 18
_FIRST_VERSION_WITH_LEVEL_0 = 4
# KIP-511: letters, digits, dots and hyphens, beginning and ending with a letter or digit.
_SOFTWARE = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"


def handle_api_versions(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= 3 and not (
        re.fullmatch(_SOFTWARE, request.client_software_name)
        and re.fullmatch(_SOFTWARE, request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = broker.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=api_key,
                min_version=ADVERTISED_VERSION_MIN.get(api_key, served.version_min),
                max_version=served.version_max,
            )
            for api_key, served in (CONTROLLER_HANDLERS if context.listener.is_controller else HANDLERS).items()
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


def unsupported_version_response() -> ApiVersionsResponse:
    served = HANDLERS[_API_VERSIONS]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=_API_VERSIONS, min_version=served.version_min, max_version=served.version_max
            )
        ],
    )
