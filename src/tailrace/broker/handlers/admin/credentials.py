"""DescribeUserScramCredentials: who has SCRAM credentials, of which mechanism and with how many iterations; never
salts or keys. AlterUserScramCredentials is the controller's to decide (controller.security.credentials).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.security import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Info = DescribeUserScramCredentialsResponse.CredentialInfo


def handle_describe_user_scram_credentials(
    services: Services, _context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    infos: dict[str, list[_Info]] = {}
    for (user, mechanism), credential in sorted(services.image.scram_credentials.items()):
        infos.setdefault(user, []).append(_Info(mechanism=mechanism, iterations=credential.iterations))
    asked = Counter(each.name for each in request.users) if request.users else Counter(infos.keys())
    return DescribeUserScramCredentialsResponse(
        results=[_describe(user, times, infos.get(user)) for user, times in asked.items()]
    )


def _describe(user: str, times: int, infos: list[_Info] | None) -> _Result:
    if times > 1:
        reason = "Cannot describe SCRAM credentials for the same user twice in a single request"
        return _Result(user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=reason)
    if infos is None:
        reason = "Attempt to describe a user credential that does not exist"
        return _Result(user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=reason)
    return _Result(user=user, credential_infos=infos)
