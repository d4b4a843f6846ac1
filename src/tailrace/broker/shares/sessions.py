"""Share sessions: which partitions a member fetches from this broker, and which request of it comes next.

A session begins with epoch 0, each request brings the next epoch, and -1 ends it. Acknowledgements may ride on a fetch,
or come alone; both belong to the session. There are at most group.share.max.share.sessions.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
_EPOCH_MAX = 0x7FFFFFFF


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class Place(NamedTuple):
    topic_id: Uuid
    partition: int


class ShareSession:
    __slots__ = ("epoch", "key", "peer", "places")

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        # Of the request that comes next.
        self.epoch = 1
        self.places: dict[Place, None] = {}
        # The client's end of the connection that its last request came by.
        self.peer = ""

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class ShareSessions:
    def __init__(self) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, *, sessions_max: int) -> tuple[ShareSession, ShareSession | None]:
        """A new session, and the one of the member that it takes the place of. Raises SHARE_SESSION_LIMIT_REACHED."""
        old = self._sessions.pop(key, None)
        if len(self._sessions) >= sessions_max:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"This broker has {sessions_max} share sessions, its limit."
            )
        session = self._sessions[key] = ShareSession(key)
        return session, old

    def next(self, key: SessionKey, epoch: int) -> ShareSession:
        """Whose request of `epoch` has come. Raises SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH."""
        session = self.find(key)
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"The share session is in epoch {session.epoch}, not {epoch}."
            )
        session.advance()
        return session

    def find(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "There is no such share session on this broker.")
        return session

    def holds(self, session: ShareSession) -> bool:
        """It goes on: it was not closed, and no other has taken its place."""
        return self._sessions.get(session.key) is session

    def close(self, key: SessionKey) -> ShareSession:
        """Raises SHARE_SESSION_NOT_FOUND."""
        session = self.find(key)
        del self._sessions[key]
        return session
