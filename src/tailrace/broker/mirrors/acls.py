"""ACLs of the source about topics and groups that the link takes, given and taken away here as they are there.

Only of principals that the link names (`acls`); without one the source is not asked. Patterns that fit everything stay
there: here they would fit what is none of the source's. What was taken away at the source while nobody looked stays
here, since nothing tells it from what was given here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.client.acls import AclAdmin, AclFilter, check_created, creation_of, deletion_of, read_deleted
from tailrace.model.acls import ANY_PRINCIPAL, WILDCARD, Acl, Kind, Operation, Permission
from tailrace.model.errors import KafkaError
from tailrace.wire.apis.security import CreateAclsResponse, DeleteAclsResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailrace.broker.mirrors.room import LinkRoom
    from tailrace.controller.mirrors.settings import LinkSettings

_ACLS_MAX = 10_000
# What `promote --fence-source` has given: it is of the source alone.
_FENCE = (ANY_PRINCIPAL, WILDCARD, Operation.WRITE, Permission.DENY)


class AclSync:
    def __init__(self, room: LinkRoom) -> None:
        self._room = room
        self._before: frozenset[Acl] = frozenset()  # As the source had them at the last look.

    async def sync(self) -> None:
        room = self._room
        if not room.settings.acls.include:
            return
        try:
            admin = AclAdmin(room.cluster)
            found = [acl for kind in (Kind.TOPIC, Kind.GROUP) for acl in await admin.find(AclFilter(kind=kind))]
            wanted = frozenset(mirrored_acls(found, room.settings)[:_ACLS_MAX])
            here = frozenset(room.node.image.acls.values())
            if missing := sorted(wanted - here):
                check_created(missing, await room.node.forwarding.ask(creation_of(missing), CreateAclsResponse))
            if gone := sorted((self._before - wanted) & here):
                exactly = deletion_of(AclFilter(*acl) for acl in gone)
                read_deleted(await room.node.forwarding.ask(exactly, DeleteAclsResponse))
            self._before = wanted
            room.tell("acls", None)
        except KafkaError as error:
            room.tell("acls", f"ACLs are not in step: {error.message}")


def mirrored_acls(found: Iterable[Acl], settings: LinkSettings) -> list[Acl]:
    """Those that follow, by the names that topics have here."""
    wanted = []
    for acl in found:
        if acl.name == WILDCARD or acl[3:] == _FENCE or not settings.acls.takes(acl.principal):
            continue
        if acl.kind is Kind.TOPIC and settings.takes_topic(acl.name):
            wanted.append(acl._replace(name=settings.topic_prefix + acl.name))
        elif acl.kind is Kind.GROUP and settings.groups.takes(acl.name):
            wanted.append(acl)
    return sorted(wanted)
