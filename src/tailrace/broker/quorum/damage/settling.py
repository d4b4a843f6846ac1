"""What a node does about a damaged metadata log when it starts.

    nothing that was synced is missing      it goes on with what is left: a torn end is cut, and where a snapshot holds
                                            what a damaged part held, a sound log is made of the rest
    something is, and others may have it    the same; but this voter has no voice until it has caught up
    something is, and nobody else has it    it does not start: a person decides, with `tailrace repair`
    it was never counted (a broker's)       what is left is kept, and the rest is fetched again

Never guesses that it is alone: voters that the lost part tells of count as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tailrace.broker.quorum.damage.inspection import Inspection
from tailrace.broker.quorum.damage.rebuilding import read_damage, rebuild
from tailrace.broker.quorum.damage.synced_end import read_synced_end
from tailrace.broker.quorum.snapshots import SnapshotFiles
from tailrace.broker.quorum.state_file import read_quorum_state
from tailrace.log.files.failures import disk_errors
from tailrace.model import events
from tailrace.model.config import BrokerConfig, parse_endpoint
from tailrace.model.errors import StorageError
from tailrace.model.ports import Disk, Random
from tailrace.raft.messages import NO_LEADER, QuorumState
from tailrace.wire.apis.stored_records import LeaderChangeMessage, VotersRecord
from tailrace.wire.schema import Message

_log = events.logger("quorum")

_CONTROLLER = "controller"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_counted(config: BrokerConfig, disk: Disk) -> bool:
    """Whether a majority is counted with this log: of a controller, and of who became a voter without being one.
    StorageError."""
    with disk_errors(f"{config.metadata_folder} cannot be read"):
        return _CONTROLLER in config.process_roles or read_synced_end(disk, config.metadata_folder) is not None


def settle_damage(config: BrokerConfig, disk: Disk, random: Random) -> Inspection:
    """Gives what a log holds that can be opened as it is. StorageError with cause and remedy if there is none."""
    folder, must_be_whole = config.metadata_folder, is_counted(config, disk)
    found = read_damage(disk, folder, must_be_whole=must_be_whole)
    if not found.must_be_rebuilt:
        return found
    is_lossy = must_be_whole and found.is_lossy
    if is_lossy and not has_others(config, disk, found):
        raise StorageError(_refusal(config, found))
    end_offset = found.rest.end_offset
    kept = rebuild(disk, random, folder, found, must_catch_up=is_lossy, keeps_one=True)
    for problem in found.problems():
        _log.error("the metadata log is damaged", file=problem.path, position=problem.position, cause=problem.problem)
    if is_lossy:
        _log.error(
            "records of the metadata log are lost on this node: it has no vote until it has fetched them from a leader",
            end_offset=end_offset,
            synced_end_offset=found.synced_end,
            kept=kept,
        )
    else:
        _log.warning("the metadata log was made anew of what is sound", end_offset=end_offset, kept=kept)
    return read_damage(disk, folder, must_be_whole=must_be_whole)


def has_others(config: BrokerConfig, disk: Disk, found: Inspection) -> bool:
    """Whether there are, or may be, voters besides this node: as told by the log, by its lost part too as far as that
    can be read; if that tells nothing, by its last vote and the settings."""
    ids = voter_ids(disk, found)
    if ids:
        return bool(ids - {config.node_id})
    state = QuorumState()
    with suppress(StorageError):
        state = read_quorum_state(disk, found.folder) or state
    known = {state.leader_id, NO_LEADER if state.voted is None else state.voted.id}
    return bool(known - {NO_LEADER, config.node_id}) or bool(foreign_servers(config))


def voter_ids(disk: Disk, found: Inspection) -> set[int]:
    """All that the log has ever told of, as far as it can be read. StorageError."""
    files = SnapshotFiles(disk, found.folder, found.snapshots)
    ids: set[int] = set()
    for snapshot in found.snapshots:
        ids.update(_ids(files.read_control(snapshot)))
    return ids.union(_ids(message for _, message in found.control_records))


def foreign_servers(config: BrokerConfig) -> list[str]:
    """Those of controller.quorum.bootstrap.servers that are not this node for certain."""
    own = {(endpoint.host, endpoint.port) for endpoint in (*config.listeners, *config.advertised_listeners)}
    own_loopback_ports = {port for host, port in own if host in _LOOPBACK}
    foreign = []
    for server in config.controller_quorum_bootstrap_servers:
        _, host, port = parse_endpoint(f"BOOTSTRAP://{server}")
        if (host, port) not in own and not (host in _LOOPBACK and port in own_loopback_ports):
            foreign.append(server)
    return foreign


def _ids(messages: Iterable[Message]) -> set[int]:
    ids: set[int] = set()
    for message in messages:
        if isinstance(message, VotersRecord | LeaderChangeMessage):
            ids.update(voter.voter_id for voter in message.voters)
    return ids


def _refusal(config: BrokerConfig, found: Inspection) -> str:
    problems = found.problems()
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    synced = "" if found.synced_end is None else f", though it was synced up to {found.synced_end}"
    return (
        f"The metadata log is damaged: {problems[0]}{more}. What is sound ends at offset "
        f"{found.rest.end_offset}{synced}; topics and settings may be missing, so this node does not start. Restore "
        f"{found.folder} from a backup, or look at what would be lost: tailrace repair --data {config.metadata_folder}"
    )
