"""What ACLs allow, as the rules are written down and with no thought of speed: what an authorizer is compared with."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.controller.security.authorizer import Resource
from tailrace.model.acls import ANY_PRINCIPAL, IMPLIED_BY, WILDCARD, Acl, Operation, PatternType, Permission


def fits(acl: Acl, resource: Resource) -> bool:
    if acl.kind is not resource.kind:
        return False
    if acl.pattern_type is PatternType.PREFIXED:
        return resource.name.startswith(acl.name)
    return acl.name in (WILDCARD, resource.name)


def concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, ANY_PRINCIPAL) and acl.host in (host, WILDCARD)


def is_allowed(
    acls: Iterable[Acl],
    principal: str,
    host: str,
    operation: Operation,
    resource: Resource,
    *,
    allows_without_acl: bool = False,
) -> bool:
    about = [acl for acl in acls if fits(acl, resource)]
    mine = [acl for acl in about if concerns(acl, principal, host)]
    if any(acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
        return False
    enough = (operation, Operation.ALL, *IMPLIED_BY.get(operation, ()))
    if any(acl.permission is Permission.ALLOW and acl.operation in enough for acl in mine):
        return True
    return allows_without_acl and not about
