"""CreateAcls and DeleteAcls as records, and the ACLs that a filter fits.

Each creation and each filter stands or falls alone. Creating what is there already writes nothing and succeeds, as does
deleting what is not. Whether an operation makes sense for a resource is not asked, as in Kafka: such an ACL never fits.

A filter's name and its pattern type belong together (KIP-290):
    LITERAL, PREFIXED   patterns of that type, with that name
    ANY                 patterns of either type, with that name
    MATCH               patterns that fit that name: it, `*`, and prefixes of it
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from tailrace.controller.snapshot import acl_record
from tailrace.controller.view import Result, View
from tailrace.model.acls import (
    ANY,
    CLUSTER_NAME,
    MATCH,
    WILDCARD,
    Acl,
    Kind,
    Operation,
    PatternType,
    Permission,
)
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.wire.apis.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
)
from tailrace.wire.apis.stored_records import RemoveAccessControlEntryRecord
from tailrace.wire.schema import Message

_Matching = DeleteAclsResponse.DeleteAclsMatchingAcl
_Filter = DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter
# In one request, as in Kafka: what an op writes is one batch, and it holds the loop while it is made.
_RECORDS_MAX = 10_000


def create_acls(view: View, request: CreateAclsRequest) -> Result:
    records: list[Message] = []
    created: set[Acl] = set()
    response = CreateAclsResponse()
    for creation in request.creations:
        result = CreateAclsResponse.AclCreationResult()
        response.results.append(result)
        try:
            acl = _read_creation(creation)
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message
            continue
        if acl not in view.image.acl_ids and acl not in created:
            created.add(acl)
            records.append(acl_record(Uuid(view.random.uuid()), acl))
    _check_count(records)
    return Result(records, response)


def delete_acls(view: View, request: DeleteAclsRequest) -> Result:
    removed: dict[Uuid, None] = {}
    response = DeleteAclsResponse()
    for each in request.filters:
        result = DeleteAclsResponse.DeleteAclsFilterResult(error_message=None)
        response.filter_results.append(result)
        try:
            fitting = list(matching(view.image.acls, each))
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message
            continue
        for acl_id, acl in fitting:
            removed[acl_id] = None
            result.matching_acls.append(
                _Matching(
                    error_message=None,
                    resource_type=acl.kind,
                    resource_name=acl.name,
                    pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
            )
    records: list[Message] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed]
    _check_count(records)
    return Result(records, response)


def matching(acls: Mapping[Uuid, Acl], filter_: _Filter) -> Iterator[tuple[Uuid, Acl]]:
    """KafkaError for a filter that means nothing."""
    wanted = _read_filter(filter_)
    return ((acl_id, acl) for acl_id, acl in acls.items() if wanted.fits(acl))


class _Wanted(NamedTuple):
    """What a filter asks for; None where it asks for anything."""

    kind: int | None
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int | None
    permission: int | None

    def fits(self, acl: Acl) -> bool:
        return (
            self.kind in (None, acl.kind)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (None, acl.operation)
            and self.permission in (None, acl.permission)
            and self._fits_pattern(acl)
        )

    def _fits_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern_type != MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name == WILDCARD


def _read_filter(filter_: _Filter) -> _Wanted:
    pattern_type = filter_.pattern_type_filter
    if pattern_type not in (ANY, MATCH, *PatternType):
        raise _invalid(f"The filter's pattern type {pattern_type} is unknown")
    return _Wanted(
        _one_or_any(Kind, filter_.resource_type_filter, "resource type"),
        filter_.resource_name_filter,
        pattern_type,
        filter_.principal_filter,
        filter_.host_filter,
        _one_or_any(Operation, filter_.operation, "operation"),
        _one_or_any(Permission, filter_.permission_type, "permission"),
    )


def _one_or_any(words: type[IntEnum], number: int, what: str) -> int | None:
    if number == ANY:
        return None
    if number not in tuple(words):
        raise _invalid(f"The filter's {what} {number} is unknown")
    return number


def _read_creation(creation: CreateAclsRequest.AclCreation) -> Acl:
    kind = _known(Kind, creation.resource_type, "resource type")
    name, principal = creation.resource_name, creation.principal
    if not name:
        raise _invalid("The resource has no name: give one, or * for all")
    if kind is Kind.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The cluster's only name is {CLUSTER_NAME}, not {name!r}")
    if not all(principal.partition(":")):
        raise _invalid(f"The principal {principal!r} is not of the form Type:name, as User:alice is")
    return Acl(
        kind,
        name,
        _known(PatternType, creation.resource_pattern_type, "pattern type"),
        principal,
        creation.host,
        _known(Operation, creation.operation, "operation"),
        _known(Permission, creation.permission_type, "permission"),
    )


def _known(words: Any, number: int, what: str) -> Any:
    if number not in tuple(words):
        choice = ", ".join(f"{each.value} {each.name}" for each in words)
        raise _invalid(f"The {what} {number} is none of an ACL: {choice}")
    return words(number)


def _check_count(records: list[Message]) -> None:
    if len(records) > _RECORDS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The request changes {len(records)} ACLs, more than {_RECORDS_MAX}: change them in several requests",
        )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
