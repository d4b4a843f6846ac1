"""A broker with an authorizer, and connections that are somebody without logging in: the test says who they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tailrace.model.acls import CLUSTER_NAME, Acl, Kind, Operation, PatternType, Permission
from tailrace.model.config import STANDARD_AUTHORIZER
from tailrace.model.security import Principal
from tailrace.wire.apis.security import CreateAclsRequest, DeleteAclsRequest
from tests.unit.broker.world import Peer, World, running

ROOT = "root"
ALICE = "User:alice"


class SecuredWorld:
    def __init__(self, world: World, root: Peer) -> None:
        self.world = world
        self.root = root

    async def connect_as(self, name: str) -> Peer:
        before = set(self._connections())
        peer = await self.world.connect()
        await peer.request(_nothing(), 0)  # Then the broker has it.
        (connection,) = set(self._connections()) - before
        connection.principal = Principal("User", name)
        return peer

    def _connections(self) -> list[Any]:
        return list(self.world.broker.acceptors[0].connections)

    async def add(self, *acls: Acl) -> None:
        answer = await self.root.request(CreateAclsRequest(creations=[creation_of(acl) for acl in acls]), 3)
        assert [each.error_code for each in answer.results] == [0] * len(acls)

    async def clear(self) -> None:
        everything = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        await self.root.request(DeleteAclsRequest(filters=[everything]), 3)


@asynccontextmanager
async def secured(settings: dict[str, str] | None = None) -> AsyncIterator[SecuredWorld]:
    values = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": f"User:{ROOT}"} | (settings or {})
    async with running(values) as world:
        everything = SecuredWorld(world, None)  # type: ignore[arg-type] # Who comes next.
        everything.root = await everything.connect_as(ROOT)
        yield everything


def allow(operation: Operation, kind: Kind, name: str = CLUSTER_NAME, **rest: Any) -> Acl:
    values: dict[str, Any] = {
        "kind": kind,
        "name": name,
        "pattern_type": PatternType.LITERAL,
        "principal": ALICE,
        "host": "*",
        "operation": operation,
        "permission": Permission.ALLOW,
    }
    return Acl(**values | rest)


def deny(operation: Operation, kind: Kind, name: str = CLUSTER_NAME, **rest: Any) -> Acl:
    return allow(operation, kind, name, permission=Permission.DENY, **rest)


def creation_of(acl: Acl) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=acl.kind,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _nothing() -> Any:
    from tailrace.wire.apis.data import ApiVersionsRequest

    return ApiVersionsRequest()
