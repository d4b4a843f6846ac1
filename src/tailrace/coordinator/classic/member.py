"""One member of a classic group: what its client said of itself, and which of its requests wait for an answer."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tailrace.coordinator.op import Caller


class Protocol(NamedTuple):
    """A way of assigning that a member knows, and what the member has to say in it: bytes that are not ours to read."""

    name: str
    metadata: bytes


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_caller",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_caller",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[Protocol, ...],
        assignment: bytes = b"",
        is_new: bool = False,
    ) -> None:
        self.member_id = member_id
        # Set for a static member (KIP-345): it keeps its place when it comes back under another member id.
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols  # The preferred one first.
        self.assignment = assignment
        # Not yet part of a generation: it cannot send heartbeats, so its session runs out even while it waits.
        self.is_new = is_new
        # Whose JoinGroup waits until everybody has joined; set by `ClassicGroup.park_join` alone, which counts them.
        self.join_caller: Caller | None = None
        # Whose SyncGroup waits for the leader's assignment.
        self.sync_caller: Caller | None = None

    @property
    def is_excused_from_heartbeats(self) -> bool:
        """Its client waits for an answer of ours, and sends nothing meanwhile."""
        return not self.is_new and (self.join_caller is not None or self.sync_caller is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Empty if the member does not know the protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol_name), b"")

    def vote(self, candidates: Container[str]) -> str:
        """The candidate that the member likes best."""
        return next(each.name for each in self.protocols if each.name in candidates)
