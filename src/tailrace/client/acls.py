"""ACLs as an administrator sees them: created, found and deleted on any Kafka.

Each call raises KafkaError with the broker's own message if the broker refuses. Kinds, operations and permissions that
are newer than this client are left out of what is found. The functions below write the requests and read the answers
for whoever has another way to a cluster than a client's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tailrace.client.connection import error_code
from tailrace.client.metadata import Cluster
from tailrace.model.acls import ANY, Acl, Kind, Operation, PatternType, Permission
from tailrace.model.errors import KafkaError
from tailrace.wire.apis.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)


class AclFilter(NamedTuple):
    """None means any."""

    kind: Kind | None = None
    name: str | None = None
    pattern_type: int = ANY  # One of PatternType, ANY, or MATCH: all patterns that fit the name.
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def fields(self) -> dict[str, Any]:
        return {
            "resource_type_filter": self.kind or ANY,
            "resource_name_filter": self.name,
            "pattern_type_filter": self.pattern_type,
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": self.operation or ANY,
            "permission_type": self.permission or ANY,
        }


class AclAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def create(self, acls: Sequence[Acl]) -> None:
        """Those that are there already stay as they are."""
        connection = await self.cluster.any_connection()
        response = await connection.call(creation_of(acls), CreateAclsResponse)
        check_created(acls, response)

    async def find(self, wanted: AclFilter) -> list[Acl]:
        connection = await self.cluster.any_connection()
        response = await connection.call(DescribeAclsRequest(**wanted.fields()), DescribeAclsResponse)
        _check(response.error_code, response.error_message, "the ACLs are not told")
        return sorted(
            acl
            for resource in response.resources
            for each in resource.acls
            for acl in _read(resource.resource_type, resource.resource_name, resource.pattern_type, each)
        )

    async def delete(self, wanted: AclFilter) -> list[Acl]:
        """Gives those that are deleted."""
        connection = await self.cluster.any_connection()
        return read_deleted(await connection.call(deletion_of([wanted]), DeleteAclsResponse))


def creation_of(acls: Iterable[Acl]) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=acl.kind,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )


def check_created(acls: Sequence[Acl], response: CreateAclsResponse) -> None:
    for acl, result in zip(acls, response.results, strict=True):
        _check(result.error_code, result.error_message, f"{acl} is not created")


def deletion_of(wanted: Iterable[AclFilter]) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**each.fields()) for each in wanted])


def read_deleted(response: DeleteAclsResponse) -> list[Acl]:
    deleted: list[Acl] = []
    for result in response.filter_results:
        _check(result.error_code, result.error_message, "nothing is deleted")
        for each in result.matching_acls:
            _check(each.error_code, each.error_message, f"an ACL of {each.principal} is not deleted")
            deleted += _read(each.resource_type, each.resource_name, each.pattern_type, each)
    return sorted(deleted)


def _read(kind: int, name: str, pattern_type: int, entry: Any) -> Iterator[Acl]:
    with suppress(ValueError):
        yield Acl(
            Kind(kind),
            name,
            PatternType(pattern_type),
            entry.principal,
            entry.host,
            Operation(entry.operation),
            Permission(entry.permission_type),
        )


def _check(code: int, message: str | None, otherwise: str) -> None:
    if code:
        raise KafkaError(error_code(code), message or otherwise)
