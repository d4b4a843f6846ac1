"""The columns of the catalogue: what a row says of an API.

versions, listeners   which versions are served to clients, which to other nodes of the metadata quorum: ApiVersions
                      advertises just that
answered by           who decides: this node, the active controller, the quorum's leader, a coordinator
handler               the function that serves it, in broker/handlers; its name begins with `handle_`
asks                  what whoever asks must be allowed to, where the node has an authorizer: there is no default, so
                      that no API is without one
op                    the pure function that decides, in controller/ or coordinator/, for whom others answer
failure               how it is refused as a whole: where the error code stands in its answer; see broker/failures
only_with             the part of `broker/services` without which it is neither served nor advertised
is_forwardable        whether a broker hands it on to the controller for a client, in an Envelope
throttled             what of it counts for the quotas of its client; see broker/quotas
is_audited            whether each request is written to the audit log; see broker/logs/audit
before, after         steps of its own on the way of a request; see broker/serving/dispatch
"""

from enum import Enum
from typing import NamedTuple

from tailrace.model.acls import Kind, Operation
from tailrace.wire.apis.keys import ApiKey

Versions = tuple[int, int]  # the lowest and the highest
# How it is refused as a whole: at the top, in the items of arrays, or by a function. See broker/failures.
Form = tuple[str, ...] | str

# What somebody changes for others. Not here is what clients do at work, and what nodes ask of each other.
AUDITED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_RECORDS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ELECT_LEADERS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.CREATE_MIRROR_LINK,
        ApiKey.ALTER_MIRROR_LINK,
        ApiKey.OPEN_MIRROR_TOPICS,
        ApiKey.CLOSE_MIRROR_SOURCE,
        ApiKey.REVERSE_MIRROR,
    }
)


class AnsweredBy(Enum):
    THIS_NODE = "this node"
    CONTROLLER = "the active controller"
    QUORUM = "the leader of the metadata quorum"
    GROUPS = "the coordinator of a group"
    TRANSACTIONS = "the coordinator of a transactional id"


class Audience(Enum):
    """Where a request comes in."""

    CLIENTS = "a listener of clients"
    CONTROLLERS = "a listener of the metadata quorum"
    FORWARDED = "in an Envelope"


class Throttled(Enum):
    """What counts for the quotas of the client, beside the time that the request takes."""

    BY_TIME = "its time alone"
    BY_PRODUCED = "the bytes of the request"
    BY_FETCHED = "the bytes of the answer"
    NEVER = "it is between brokers"


class Need(NamedTuple):
    """An operation on what a request names. Whoever lacks it gets the code that the kind of resource has, in the form
    in which the API is refused: for the items that may not be, or for the whole."""

    operation: Operation
    kind: Kind
    # Where the names stand: `group_id` is a field, `topics.name` a field of each item, `groups[]` the items themselves.
    # Items without a name have a topic id: one that is unknown is not judged, its handler says so. Empty: the cluster.
    names: str = ""
    # An operation on the cluster that is enough as well.
    or_cluster: Operation | None = None


# One after the other; a name is that of a function in broker/access, where one need does not say it all.
Asks = tuple[Need | str, ...]
# For APIs that tell of nothing that could be kept back, or only of what others have judged.
OPEN: Asks = ()


class Served(NamedTuple):
    """On one kind of listeners: the versions (both inclusive, as on the wire), the function that does it, and what
    whoever asks must be allowed to."""

    version_min: int
    version_max: int
    handler: str
    asks: Asks


class Api(NamedTuple):
    key: ApiKey
    # By listeners of clients, and by those of the metadata quorum; None where it is not served.
    for_clients: Served | None = None
    for_controllers: Served | None = None
    answered_by: AnsweredBy = AnsweredBy.THIS_NODE
    op: str = ""
    failure: Form = ()
    is_forwardable: bool = False
    # The lowest version that is advertised, where it is not the lowest that is served.
    advertised_min: int | None = None
    throttled: Throttled = Throttled.BY_TIME
    # What the node must have: an attribute of Services that is not None.
    only_with: str = ""
    # From this version on it is spoken between brokers alone.
    between_brokers_since: int | None = None

    # Functions, by their full names: who may ask and who must wait; what an answer has cost.
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def is_audited(self) -> bool:
        return self.key in AUDITED

    def served_to(self, audience: Audience) -> Served | None:
        match audience:
            case Audience.CLIENTS:
                return self.for_clients
            case Audience.CONTROLLERS:
                return self.for_controllers
            case Audience.FORWARDED:
                return self.for_controllers if self.is_forwardable else None

    def throttled_in(self, version: int, audience: Audience) -> Throttled:
        """Clients are throttled by the broker that they ask, not again by the controller that it asks for them."""
        since = self.between_brokers_since
        is_of_client = audience is Audience.CLIENTS and (since is None or version < since)
        return self.throttled if is_of_client else Throttled.NEVER
