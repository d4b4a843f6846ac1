"""ApiVersions: what this broker serves, exactly as the table of handlers says.

Version notes: from 3 on a client names its software (KIP-511), which must look like a name; the answer carries
features (KIP-584). A request in an unknown version is answered by dispatch, in version 0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailrace.broker.handlers import ADVERTISED_VERSION_MIN, HANDLERS
from tailrace.controller.image import METADATA_VERSION, METADATA_VERSION_LEVEL
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.context import RequestContext

_API_VERSIONS = 18
# Level 7 (Kafka 3.3) is the lowest that Kafka 4 starts with.
_SUPPORTED_FEATURES = {METADATA_VERSION: (7, METADATA_VERSION_LEVEL)}
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
            for api_key, served in HANDLERS.items()
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in _SUPPORTED_FEATURES.items()
        ],
        finalized_features_epoch=image.next_offset - 1,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in image.features.items()
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
