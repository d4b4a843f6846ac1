"""DescribeAcls, CreateAcls and DeleteAcls: the ACLs of the cluster, which are metadata.

They are read from the published image of whichever node is asked, and changed by the controller
(controller.security.acls). A node without an authorizer refuses all three: it would keep none of what an ACL says.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tailrace.broker.handlers.admin.controller import handle_by_controller
from tailrace.controller.security.acls import matching
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.security import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.apis.security import CreateAclsRequest, DeleteAclsRequest
    from tailrace.wire.schema import Message

_Described = DescribeAclsResponse.DescribeAclsResource


def handle_describe_acls(
    services: Services, _context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    _check_enabled(services)
    resources: dict[tuple[int, str, int], DescribeAclsResponse.DescribeAclsResource] = {}
    for _, acl in matching(services.image.acls, request):
        pattern = acl.kind, acl.name, acl.pattern_type
        if pattern not in resources:
            resources[pattern] = _Described(
                resource_type=acl.kind, resource_name=acl.name, pattern_type=acl.pattern_type
            )
        resources[pattern].acls.append(
            DescribeAclsResponse.AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


def handle_change_acls(
    services: Services, context: RequestContext, request: CreateAclsRequest | DeleteAclsRequest
) -> Coroutine[Any, Any, Message]:
    _check_enabled(services)
    return handle_by_controller(services, context, request)


def _check_enabled(services: Services) -> None:
    if services.access is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED, "There is no authorizer, so that ACLs mean nothing: set authorizer.class.name"
        )
