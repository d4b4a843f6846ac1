"""What must hold of the metadata quorum, looked at after every turn of a node and in full now and then.

- At most one node leads the quorum in one epoch, and its log has all that was committed before.
- One that was replaced stops acting before the time is over for which its last fetch stands, whatever it has yet to
  read.
- A replica, known by node and directory, gives its vote once per epoch. A vote is given when it is on the disk, or when
  a live node has had it for so long that it must have been sent.
- The high watermark of a node never falls and is never above the end of its log.
- Committed batches never change or go (see `history`).
- The replay of a node's snapshot and log gives the image that the node has.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.broker.broker import Broker
from tailrace.broker.quorum.snapshots import read_batches
from tailrace.broker.quorum.state_file import read_quorum_state
from tailrace.controller.image import MetadataImage
from tailrace.controller.machine import Controller
from tailrace.model.ports import Bytes
from tailrace.raft.types import OffsetAndEpoch
from tailrace.sim.checks.history import History, demand
from tailrace.sim.cluster import Node, SimCluster
from tailrace.sim.random import SimRandom
from tailrace.sim.trace import Trace
from tailrace.wire.record_envelopes import decode_metadata_record
from tailrace.wire.records import iterate_headers, iterate_records

_READ_BYTES = 1 << 20
_MAX_DECOMPRESSED_BYTES = 64 << 20
# A slow disk takes half a second to store a vote.
_VOTE_SECONDS = 2.0
# Clocks differ, and a slow node takes its time for a turn.
_JUDGEMENT_SECONDS = 0.5


class QuorumState(NamedTuple):
    """A node of the quorum as it shows itself."""

    role: str
    epoch: int
    voted: object
    high_watermark: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.role:<8} epoch={self.epoch} end={self.end_offset} hw={self.high_watermark}"


class _Seen:
    __slots__ = ("compared_to", "life", "state", "undecided_since")

    def __init__(self, life: int) -> None:
        self.life = life
        self.state: QuorumState | None = None
        self.compared_to = 0
        self.undecided_since: float | None = None  # A vote was made up that is not known to be given yet.


class MetadataChecks:
    def __init__(self, cluster: SimCluster, trace: Trace) -> None:
        self.history = History("metadata")
        self._cluster = cluster
        self._trace = trace
        self._leaders: dict[int, str] = {}
        self._led_since: dict[int, float] = {}  # By epoch.
        self._votes: dict[tuple[object, int], object] = {}
        self._seen: dict[str, _Seen] = {}

    def look(self, node: Node) -> None:
        """After a turn of a node."""
        broker = node.broker
        state = None if broker is None else quorum_state(broker)
        if broker is None or state is None:
            return
        seen = self._seen.get(node.name)
        if seen is None or seen.life != node.lives:
            seen = self._seen[node.name] = _Seen(node.lives)
        if state != seen.state:
            self._judge(node, broker, seen, state)
        if seen.undecided_since is not None:
            self._judge_vote(node, broker, seen, state)
        if state.role == "leader" and state.epoch < max(self._led_since, default=0):
            self._judge_replaced(node, broker, state)

    def _judge(self, node: Node, broker: Broker, seen: _Seen, state: QuorumState) -> None:
        before, seen.state = seen.state, state
        if before is None or before[:2] != state[:2]:
            self._trace.note(node.name, f"{'metadata':<12} {state}")
        demand(
            state.high_watermark <= state.end_offset,
            "high_watermark <= log_end_offset of the metadata",
            node=node.name,
            state=state,
        )
        if before is None or (before.epoch, before.voted) != (state.epoch, state.voted):
            seen.undecided_since = None if state.voted is None else self._cluster.world.loop.now
        if before is not None:
            demand(
                before.high_watermark <= state.high_watermark,
                "the high watermark of the metadata never falls",
                node=node.name,
                before=before,
                now=state,
            )
        if before is None or before.high_watermark != state.high_watermark:
            self._compare(node, broker, seen, state.high_watermark)
        if state.role == "leader" and (before is None or before[:2] != state[:2]):
            self._judge_leader(node, state)

    def _judge_vote(self, node: Node, broker: Broker, seen: _Seen, state: QuorumState) -> None:
        assert seen.undecided_since is not None, "there is a vote to judge"
        is_old = self._cluster.world.loop.now - seen.undecided_since > _VOTE_SECONDS and not node.is_sabotaged
        with node.disk.observed():
            stored = read_quorum_state(node.disk, broker.quorum.log.folder)
        if is_old or (stored is not None and (stored.epoch, stored.voted) == (state.epoch, state.voted)):
            seen.undecided_since = None
            replica = broker.quorum.driver.node.key
            vote = self._votes.setdefault((replica, state.epoch), state.voted)
            demand(vote == state.voted, "a vote is given once per epoch", voter=replica, votes=(vote, state.voted))

    def _judge_leader(self, node: Node, state: QuorumState) -> None:
        leader = self._leaders.setdefault(state.epoch, node.name)
        self._led_since.setdefault(state.epoch, self._cluster.world.loop.now)
        demand(
            leader == node.name,
            "at most one leader of the quorum per epoch",
            epoch=state.epoch,
            leaders=(leader, node.name),
        )
        demand(
            state.end_offset >= self.history.end_offset,
            "a leader of the quorum has all that is committed",
            node=node.name,
            state=state,
            committed_end=self.history.end_offset,
        )

    def _judge_replaced(self, node: Node, broker: Broker, state: QuorumState) -> None:
        now = self._cluster.world.loop.now
        since = min(began for epoch, began in self._led_since.items() if epoch > state.epoch)
        timeout_seconds = node.config.controller_quorum_fetch_timeout_ms / 1000
        demand(
            not broker.quorum.driver.may_act or now - since <= timeout_seconds + _JUDGEMENT_SECONDS,
            "a controller that was replaced stops in time",
            node=node.name,
            state=state,
            replaced_at=since,
        )

    def _compare(self, node: Node, broker: Broker, seen: _Seen, end: int) -> None:
        log = broker.quorum.log
        offset = max(seen.compared_to, log.start_offset)
        with node.disk.observed():
            while offset < end:
                piece = log.read(offset, _READ_BYTES, end)
                next_offset = -1 if piece is None else self.history.compare(node.name, piece.read(), offset, end)
                if next_offset < 0:
                    break
                seen.compared_to = offset = next_offset

    # ---- in full

    def replay_all(self) -> None:
        for node in self._cluster.nodes:
            broker = node.broker
            if broker is None or not node.is_ready or node.may_complain:
                continue
            if broker.image.next_offset < broker.quorum.log.start_offset:
                continue  # A snapshot has replaced its log, and is being loaded.
            with node.disk.observed():
                image = replay(broker)
            demand(
                image == broker.image,
                "the replay of the metadata log gives the live state",
                node=node.name,
                differences=_differences(image, broker.image),
            )


def quorum_state(broker: Broker) -> QuorumState | None:
    """None before the quorum was started."""
    driver = getattr(getattr(broker, "quorum", None), "driver", None)
    if driver is None or getattr(driver, "node", None) is None:
        return None
    node = driver.node
    role = "leader" if driver.is_leader else type(node.role).__name__.lower()
    return QuorumState(role, node.epoch, node.standing.state.voted, driver.high_watermark, broker.quorum.log.end_offset)


def replay(broker: Broker) -> MetadataImage:
    """From the latest snapshot that is not after the image, and the log behind it, up to where the image is."""
    image, log = broker.image, broker.quorum.log
    controller = Controller(broker.config, SimRandom(0), cluster_id=image.cluster_id)
    offset = 0
    for snapshot in log.snapshots.ids:
        if log.start_offset <= snapshot.offset <= image.next_offset:
            controller = Controller(broker.config, SimRandom(0), cluster_id=image.cluster_id)
            offset = _replay_snapshot(broker, controller, snapshot)
    while offset < image.next_offset:
        piece = log.read(offset, _READ_BYTES, image.next_offset)
        demand(piece is not None, "the metadata log can be read", offset=offset, image=image.next_offset)
        assert piece is not None, "as was demanded"
        data = piece.read()
        for position, header in iterate_headers(data, allow_partial=True):
            if header.next_offset > image.next_offset:
                return controller.image
            if header.is_control:
                controller.replay_control(header.next_offset)
            else:
                _replay_batch(controller, data[position : position + header.size_bytes])
            offset = header.next_offset
    return controller.image


def _replay_snapshot(broker: Broker, controller: Controller, snapshot: OffsetAndEpoch) -> int:
    file = broker.quorum.log.snapshots.open_file(snapshot)
    assert file is not None, "it is listed"
    for header, batch in read_batches(file):
        if not header.is_control:
            _replay_batch(controller, batch)
    controller.replay_control(snapshot.offset)
    return snapshot.offset


def _replay_batch(controller: Controller, batch: Bytes) -> None:
    for record in iterate_records(batch, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
        controller.replay(record.offset, decode_metadata_record(record.value or b""))


def _differences(found: MetadataImage, expected: MetadataImage) -> str:
    parts = [name for name in found.__slots__ if getattr(found, name) != getattr(expected, name)]
    return "; ".join(f"{name}: {getattr(found, name)} is {getattr(expected, name)}" for name in parts)
