"""The decisions of a node's authorizer: asked by requests, cached, and told to the audit log.

A decision holds until the ACLs of the published image are others: then all are forgotten, and the lanes of producers
(`broker.serving.express`) are learned anew. The cache is bounded by `authorizer.cache.max.entries`: a client may ask
for names that do not exist, and when it is full it is begun anew.

Until a node has metadata it knows no ACL. Super users pass even then, for by them the nodes of a cluster find each
other; everybody else is told to ask another controller rather than refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from tailrace.broker.access.audit import AuditLog, Question, is_verbose
from tailrace.controller.image import METADATA_VERSION, MetadataImage
from tailrace.controller.security.authorizer import Authorizer, Decision, Resource
from tailrace.model.acls import CLUSTER_NAME, OPERATIONS, REFUSALS, Kind, Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.keys import ApiKey

if TYPE_CHECKING:
    from tailrace.model.security import Principal

# The ends of connections whose addresses are remembered as texts.
_HOSTS_MAX = 4096
_OPERATION_BITS = 8


class Asker(Protocol):
    """Whoever asks: a request, or a connection."""

    @property
    def principal(self) -> Principal: ...

    @property
    def peer(self) -> str: ...


class Publisher(Protocol):
    @property
    def image(self) -> MetadataImage: ...


class Access:
    def __init__(
        self, authorizer: Authorizer, publisher: Publisher, audit: AuditLog, *, cache_max_entries: int
    ) -> None:
        self._authorizer = authorizer
        self._publisher = publisher
        self._acls: object = None  # Those by which is decided.
        self._audit = audit
        self._cache_max_entries = cache_max_entries
        # By principal, host, kind and operation as one number, and name: the hash of an enum is a call of Python.
        self._decided: dict[tuple[Principal, str, int, str], Decision] = {}
        # By principal, peer, the same number, and name: what is allowed, and not to be told to the log, is known with
        # half the work. As large as the other at most.
        self._granted: set[tuple[Principal, str, int, str]] = set()

    def may(
        self,
        asker: Asker,
        operation: Operation,
        kind: Kind,
        name: str = CLUSTER_NAME,
        *,
        api_key: int = -1,
        is_logged: bool = True,
    ) -> bool:
        """Whether whoever asks may do so. What is not logged is only looked at, and not what was asked for."""
        image, number = self._publisher.image, kind << _OPERATION_BITS | operation
        if image.acls is not self._acls:
            self._follow(image)
        elif (asker.principal, asker.peer, number, name) in self._granted:
            return True
        host = host_text(asker.peer)
        key = asker.principal, host, number, name
        decision = self._decided.get(key)
        if decision is None:
            decision = self._decided[key] = self._decide(image, (asker.principal, host, operation, kind, name))
        if not decision.is_allowed or is_verbose():
            if is_logged:
                self._audit.note(decision, (asker.principal, host, operation, kind, name), api_key)
        else:
            if len(self._granted) >= self._cache_max_entries:
                self._granted.clear()
            self._granted.add((asker.principal, asker.peer, number, name))
        return decision.is_allowed

    def _follow(self, image: MetadataImage) -> None:
        self._acls = image.acls
        self._authorizer.index.follow(image.acls)
        self._decided.clear()
        self._granted.clear()

    def _decide(self, image: MetadataImage, question: Question) -> Decision:
        who, host, operation, kind, name = question
        principal = str(who)
        decision = self._authorizer.decide(principal, host, operation, Resource(kind, name))
        if METADATA_VERSION not in image.features and not self._authorizer.is_super_user(principal):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node has not loaded the ACLs yet: ask another, or later")
        if len(self._decided) >= self._cache_max_entries:
            self._decided.clear()
        return decision

    def may_have_lane(self, asker: Asker, topic: str) -> bool:
        """Whether a producer may take the short way to a topic. If not, its request takes the general way, and is
        denied and logged there."""
        may_write = self.may(asker, Operation.WRITE, Kind.TOPIC, topic, is_logged=False)
        return may_write and self.may(asker, Operation.WRITE, Kind.TOPIC, topic, api_key=ApiKey.PRODUCE)

    def may_have_form(self, asker: Asker, group_id: str, topics: Iterable[str]) -> bool:
        """Whether a consumer's commits may take the short way. Likewise."""
        needs = [(Kind.GROUP, group_id), *((Kind.TOPIC, topic) for topic in topics)]
        may_commit = all(self.may(asker, Operation.READ, kind, name, is_logged=False) for kind, name in needs)
        return may_commit and all(
            self.may(asker, Operation.READ, kind, name, api_key=ApiKey.OFFSET_COMMIT) for kind, name in needs
        )

    def may_on_any(self, asker: Asker, operation: Operation, kind: Kind) -> bool:
        """Whether there is some resource of the kind with which whoever asks may do so."""
        image = self._publisher.image
        if image.acls is not self._acls:
            self._follow(image)
        return self._authorizer.decide_by_kind(str(asker.principal), host_text(asker.peer), operation, kind)

    def operations(self, asker: Asker, kind: Kind, name: str = CLUSTER_NAME) -> int:
        """What may be done with a resource, as `authorized_operations` tell it: a bit for each operation."""
        return sum(1 << each for each in OPERATIONS[kind] if self.may(asker, each, kind, name, is_logged=False))


def refusal(asker: Asker, operation: Operation, kind: Kind) -> KafkaError:
    """It says what is missing, and nothing of what is there."""
    what = "the cluster" if kind is Kind.CLUSTER else f"this {kind.name.lower().replace('_', ' ')}"
    return KafkaError(REFUSALS[kind], f"{operation.name} on {what} is not allowed to {asker.principal}")


@lru_cache(maxsize=_HOSTS_MAX)
def host_text(peer: str) -> str:
    """The address as Java writes it, and so as it stands in ACLs: of IPv6 all eight parts."""
    host = peer.rpartition(":")[0]
    if ":" not in host:
        return host
    from ipaddress import IPv6Address

    try:
        address = IPv6Address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(part.lstrip("0") or "0" for part in address.exploded.split(":"))
