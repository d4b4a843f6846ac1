"""Who this node is in the quorum, and what it knows at its start: from the settings, the log and the state file."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.broker.quorum.metadata_log import MetadataLog
from tailrace.broker.quorum.state_file import read_quorum_state
from tailrace.model import events
from tailrace.model.config import BrokerConfig, Endpoint, parse_endpoint
from tailrace.model.errors import StorageError
from tailrace.model.ports import Disk
from tailrace.raft.messages import QuorumState
from tailrace.raft.node import RaftIdentity, Timing
from tailrace.raft.types import BOOTSTRAP_OFFSET, ReplicaKey, Voter, VoterSet
from tailrace.raft.voters import VoterHistory
from tailrace.wire.apis.stored_records import VotersRecord
from tailrace.wire.schema import Message

_log = events.logger("quorum")

_CONTROLLER = "controller"
# Kafka's settings may be 0. Below this an election would end before an answer can come, and the loop would do nothing
# but hold elections.
_TIMEOUT_MIN_MS = 20


def identity_of(config: BrokerConfig, key: ReplicaKey, endpoints: tuple[Endpoint, ...]) -> RaftIdentity:
    is_controller = _CONTROLLER in config.process_roles
    return RaftIdentity(
        key,
        endpoints if is_controller else (),
        config.controller_listener_names[0] if config.controller_listener_names else "",
        tuple(parse_endpoint(f"BOOTSTRAP://{server}") for server in config.controller_quorum_bootstrap_servers),
        wants_to_vote=is_controller and config.controller_quorum_auto_join_enable,
    )


def timing_of(config: BrokerConfig) -> Timing:
    return Timing(
        max(config.controller_quorum_election_timeout_ms, _TIMEOUT_MIN_MS),
        config.controller_quorum_election_backoff_max_ms,
        max(config.controller_quorum_fetch_timeout_ms, _TIMEOUT_MIN_MS),
        max(config.controller_quorum_retry_backoff_ms, 1),
    )


def controller_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """As advertised, where a listener is; else as it is bound. A port that is not known yet is nobody's address."""
    advertised = {endpoint.listener_name: endpoint for endpoint in config.advertised_listeners}
    found = []
    for endpoint in config.listeners:
        if endpoint.listener_name in config.controller_listener_names:
            chosen = advertised.get(endpoint.listener_name, endpoint)
            found.append(chosen._replace(host=chosen.host or "localhost"))
    return tuple(endpoint for endpoint in found if endpoint.port)


def read_voters(
    config: BrokerConfig, log: MetadataLog, key: ReplicaKey, endpoints: tuple[Endpoint, ...]
) -> VoterHistory:
    """From the latest snapshot and the log behind it. A controller that was told of no quorum is one by itself."""
    found = list(voters_of(log.control_records()))
    snapshot = log.latest_snapshot
    base, base_offset = VoterSet(), BOOTSTRAP_OFFSET
    if found and snapshot is not None and found[0][0] < snapshot.offset:
        base_offset, base = found.pop(0)
    is_alone = _CONTROLLER in config.process_roles and not config.controller_quorum_bootstrap_servers
    if not base and not found and is_alone:
        base = VoterSet((Voter(key, endpoints),))
    history = VoterHistory(base, base_offset)
    for offset, voters in found:
        history.add(offset, voters)
    return history


def voters_of(records: Iterable[tuple[int, Message]]) -> tuple[tuple[int, VoterSet], ...]:
    """The voter sets among control records, with their offsets."""
    return tuple((offset, VoterSet.of_record(each)) for offset, each in records if isinstance(each, VotersRecord))


def read_state(disk: Disk, log: MetadataLog, voters: VoterSet, key: ReplicaKey) -> QuorumState:
    """StorageError if it is damaged or gone. A node that votes alone can do without: the log knows the epochs that
    matter."""
    try:
        state = read_quorum_state(disk, log.folder)
        if state is None and log.end_offset > 0 and voters.contains(key):
            # It is written before the first record is.
            raise StorageError(
                f"{log.folder} holds a log and no quorum-state: this voter no longer knows how it has voted. Format "
                "the folder anew and add the node to the quorum again."
            )
        return state or QuorumState()
    except StorageError as error:
        if len(voters) == 1 and voters.contains(key):
            _log.warning("quorum-state is written anew", cause=error)
            return QuorumState()
        raise
