"""Who asks, and what a registry wants to know of them. `OpenDoor` is a registry that asks nobody."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from starlette.requests import Request

from tailrace.model.acls import Operation

ANONYMOUS = "User:ANONYMOUS"


class Caller(NamedTuple):
    principal: str
    host: str


class Door(Protocol):
    async def enter(self, request: Request) -> Caller:
        """Raises RegistryError 401 if it is not known who comes, or 503 if that cannot be found out now."""

    def may(self, caller: Caller, operation: Operation, subject: str | None) -> bool:
        """Whether the caller may do it to a subject, or to the registry as a whole (None)."""


class OpenDoor:
    async def enter(self, request: Request) -> Caller:
        return Caller(ANONYMOUS, request.client.host if request.client else "")

    def may(self, caller: Caller, operation: Operation, subject: str | None) -> bool:
        del caller, operation, subject
        return True
