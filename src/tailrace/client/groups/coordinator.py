"""The way to the coordinator of one group or transactional id: found when needed, and again whenever it has moved.

It is a connection of its own, apart from those that fetch: a broker answers a connection in order, and neither a fetch
that waits for records nor a JoinGroup that waits for other members may hold up what keeps a member alive.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TypeVar

from tailrace.client.connection import Address, Connection, error_code
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.wire.schema import Message

R = TypeVar("R", bound=Message)

# Since this version a request may ask for several keys, and names them elsewhere.
_SEVERAL_KEYS_VERSION = 4
# What a broker says that is not, or not yet, the coordinator; a lost connection says nothing else.
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION})


class CoordinatorKind(IntEnum):
    """What is coordinated; the type of a key in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


_NOUNS = {CoordinatorKind.GROUP: "group", CoordinatorKind.TRANSACTION: "transactional id"}


class Coordinator:
    """`close` it at the end."""

    def __init__(self, cluster: Cluster, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        self.cluster = cluster
        self.group_id = key
        self._kind = kind
        # As the coordinator told them when it was last connected to.
        self.finalized_features: dict[str, int] = {}
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    async def call(
        self,
        request: Message,
        response_type: type[R],
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """One attempt: whoever finds an error code in the answer hands it to `check`."""
        newest = _VERSIONS_MAX.get(request.api_key) if version_max is None else version_max
        try:
            connection = await self.connect()
            return await connection.call(request, response_type, version_max=newest, timeout_ms=timeout_ms)
        except KafkaError as error:
            self._note(error.code)
            raise

    async def connect(self) -> Connection:
        """Finds the coordinator, if it is not known, and gives the connection to it."""
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                _, address = await find_coordinator(self.cluster, self.group_id, self._kind)
                self._connection = await self.cluster.open(address)
                self.finalized_features = self._connection.finalized_features
            return self._connection

    def check(self, number: int, failure: str, message: str | None = None) -> None:
        """Raises what an answer's error code says; a coordinator that has moved is looked for anew."""
        code = error_code(number)
        if code is not ErrorCode.NONE:
            self._note(code)
            raise KafkaError(code, f"{failure}: {message}" if message else failure)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _note(self, code: ErrorCode) -> None:
        if code in _MOVED:
            self.close()


# From these versions on topics have no names, and a client would have to know every id.
_VERSIONS_MAX = {8: 9, 9: 9}


async def find_coordinator(
    cluster: Cluster, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP
) -> tuple[int, Address]:
    """The broker that coordinates a group, or a transactional id, now. One attempt; a broker that is starting up may
    not know it yet, which is a retriable KafkaError."""
    connection = await cluster.any_connection()
    request = FindCoordinatorRequest(key_type=kind)
    if connection.version_of(FindCoordinatorRequest) >= _SEVERAL_KEYS_VERSION:
        request.coordinator_keys = [key]
    else:
        request.key = key
    answer = await connection.call(request, FindCoordinatorResponse)
    found = answer.coordinators[0] if answer.coordinators else answer
    code = error_code(found.error_code)
    if code is not ErrorCode.NONE:
        failure = f"{_NOUNS[kind]} {key} has no coordinator now"
        raise KafkaError(code, f"{failure}: {found.error_message}" if found.error_message else failure)
    return found.node_id, Address(found.host, found.port)
