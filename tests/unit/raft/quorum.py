"""A quorum of pure nodes in one heap of events: driver, disks and network as a model, with every fault they can have.

Everything is drawn from one seed. A disk keeps what was synced, and of the rest as much as chance wants; messages are
late, lost, or cut off by partitions; nodes crash at any moment, also between a step and the writing of its state. What
must hold is checked at every step:
    one leader an epoch; one vote of a voter an epoch; a leader has everything that was committed;
    what was committed anywhere is the same everywhere, for ever; high watermarks do not fall while a node runs
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from tailrace.model.config import Endpoint
from tailrace.model.ids import Uuid
from tailrace.model.ports import Random
from tailrace.raft.leader import Leader
from tailrace.raft.messages import (
    AddVoter,
    Answer,
    Failed,
    Fetch,
    Input,
    QuorumState,
    Ready,
    Received,
    RemoveVoter,
    Replied,
    Reply,
    Request,
    Resign,
    Send,
    SnapshotInstalled,
    Synced,
    Tick,
    Vote,
    Waited,
    Written,
)
from tailrace.raft.node import RaftIdentity, RaftNode, Timing
from tailrace.raft.step import step
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from tailrace.raft.voters import VoterHistory
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.stored_records import VotersRecord
from tailrace.wire.schema import Message
from tests.unit.raft.model_log import Entry, ModelLog

TIMING = Timing(election_timeout_ms=300, election_backoff_max_ms=300, fetch_timeout_ms=400, retry_backoff_ms=20)
REQUEST_TIMEOUT_MS = 400
FETCH_WAIT_MS = 60


class Host:
    """A node with its disk. Crashing keeps the disk; `life` tells late events of an earlier life from ours."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self.quorum = quorum
        self.id = node_id
        self.random: Random = quorum.random
        self.life = 0
        self.is_up = False
        self.log = ModelLog()
        self.state = QuorumState()
        self.key = ReplicaKey(node_id, Uuid(quorum.random.uuid()))
        self.node: RaftNode
        self.inputs: deque[Input] = deque()
        self.is_busy = self.is_syncing = False
        self.download: OffsetAndEpoch | None = None
        self.timer_ms = -1.0
        self.high_watermark = 0
        # A sync takes up to so long, and storing epoch and vote between so long and so long.
        self.sync_ms = 15.0
        self.persist_ms = (0.0, 10.0)
        self.lost_until = 0
        self.answered: dict[int, Callable[[Reply], None]] = {}
        # Called for those whose requests are here: a process that dies resets its connections, a machine does not.
        self.resets: list[Callable[[], None]] = []
        self.next_token = 0

    # ---- life

    def start(self) -> None:
        quorum = self.quorum
        self.life += 1
        self.is_up = True
        self.is_busy = self.is_syncing = False
        self.inputs.clear()
        self.answered.clear()
        self.download = None
        self.timer_ms = -1.0
        self.log.settle_start()
        self.log.synced_end_offset = self.log.end_offset  # The driver syncs before it takes part.
        if self.log.snapshot is not None:
            history = VoterHistory(self.log.snapshot[1], self.log.snapshot[0].offset - 1)
        else:
            history = VoterHistory(quorum.bootstrap_voters)
        for index, (_, content) in enumerate(self.log.entries):
            offset = self.log.start_offset + index
            if isinstance(content, VoterSet) and offset > history.latest_offset:
                history.add(offset, content)
        self.node = RaftNode(
            RaftIdentity(self.key, (endpoint(self.id),), "C", tuple(map(endpoint, sorted(quorum.hosts)))),
            TIMING,
            self.log,
            self.random,
            voters=history,
            state=self.state,
            now_ms=quorum.now_ms,
        )
        self.high_watermark = self.node.high_watermark
        self.feed(Tick())

    def crash(self, *, power_loss: bool) -> None:
        self.life += 1
        self.is_up = False
        resets, self.resets = self.resets, []
        if power_loss:
            self.log.lose_power(self.quorum.random)
        else:
            for reset in resets:
                self.quorum.later(self.quorum.delay_ms, reset)

    def damage(self) -> None:
        """A part of what was synced is gone, perhaps all of it, and the node knows. Its vote is in another file."""
        assert not self.is_up
        if self.quorum.random.random() < 0.3:
            self.log = ModelLog()
        else:
            self.log.truncate(self.log.start_offset + self.quorum.random.randrange(len(self.log.entries) + 1))
        self.state = self.state._replace(must_catch_up=True)
        self.lost_until = len(self.quorum.committed)

    def is_whole(self) -> bool:
        """Whether it has again what was committed when it was damaged, and a voice."""
        log, until = self.log, self.lost_until
        if self.state.must_catch_up or (self.is_up and self.node.must_catch_up):
            return False
        return log.synced_end_offset >= until and all(
            log.at(offset) == self.quorum.committed[offset] for offset in range(log.start_offset, until)
        )

    def wipe(self) -> None:
        assert not self.is_up
        self.log, self.state = ModelLog(), QuorumState()
        self.key = ReplicaKey(self.id, Uuid(self.quorum.random.uuid()))

    # ---- the driver

    def feed(self, event: Input) -> None:
        self.inputs.append(event)
        self.drain()

    def drain(self) -> None:
        while self.is_up and self.inputs and not self.is_busy:
            ready = step(self.node, self.inputs.popleft(), self.quorum.now_ms)
            if ready.persist is None:
                self.execute(ready)
                continue
            self.is_busy = True
            state = ready.persist
            least_ms, most_ms = self.persist_ms
            delay_ms = least_ms + self.quorum.random.random() * (most_ms - least_ms)
            self.later(delay_ms, lambda ready=ready, state=state: self.persist(ready, state))  # type: ignore[misc]
        if self.is_up and not self.is_busy:
            self.settle()

    def persist(self, ready: Ready, state: QuorumState) -> None:
        self.state = state
        if self.quorum.random.random() < self.quorum.crash_at_persist:
            # On the device, and nobody was told.
            self.crash(power_loss=True)
            self.quorum.later(200, self.start)
            return
        self.execute(ready)
        self.is_busy = False
        self.drain()

    def execute(self, ready: Ready) -> None:
        self.quorum.check_vote(self)
        if ready.truncate_to is not None:
            self.log.truncate(ready.truncate_to)
            self.inputs.appendleft(Written(self.log.end_offset))
        if ready.append_fetched is not None:
            self.write(ready.append_fetched)  # type: ignore[arg-type]
        if ready.append_control:
            contents = [
                VoterSet.of_record(each) if isinstance(each, VotersRecord) else self.quorum.mark(each)
                for each in ready.append_control
            ]
            self.write([(self.node.epoch, content) for content in contents])
        for answer in ready.answers:
            self.answer(answer)
        for send in ready.sends:
            self.quorum.carry(self, send)
        self.sync()

    def write(self, entries: Sequence[Entry]) -> None:
        base_offset = self.log.end_offset
        self.log.entries.extend(entries)
        voters = tuple(
            (base_offset + index, content)
            for index, (_, content) in enumerate(entries)
            if isinstance(content, VoterSet)
        )
        self.inputs.appendleft(Written(base_offset, voters))

    def append(self) -> None:
        """A client's write, if this node believes to lead."""
        role = self.node.role if self.is_up and not self.is_busy else None
        if isinstance(role, Leader) and role.active_from_offset is not None:
            self.log.entries.append((self.node.epoch, self.quorum.mark()))
            self.sync()

    def sync(self) -> None:
        if self.is_syncing or self.log.synced_end_offset >= self.log.end_offset:
            return
        self.is_syncing = True
        self.log.sync_covers = self.log.end_offset
        self.later(self.quorum.random.random() * self.sync_ms, self.finish_sync)

    def finish_sync(self) -> None:
        self.is_syncing = False
        self.log.synced_end_offset = max(self.log.synced_end_offset, self.log.sync_covers)
        self.feed(Synced())
        self.sync()

    def receive(self, request: Request, reply_to: Callable[[Reply], None]) -> None:
        token = self.next_token
        self.next_token += 1

        def respond(reply: Reply) -> None:
            fetched = reply.fetched
            if isinstance(request, Fetch) and fetched and not fetched.diverging and not fetched.snapshot:
                if request.offset < self.log.end_offset:
                    size = 1 + self.quorum.random.randrange(5)
                    begin = request.offset - self.log.start_offset
                    fetched = fetched._replace(records=self.log.entries[begin : begin + size])  # type: ignore[arg-type]
                    reply = reply._replace(fetched=fetched)
                elif request.high_watermark >= fetched.high_watermark and token in self.answered:
                    self.answered[token] = reply_to
                    self.later(FETCH_WAIT_MS, lambda: self.feed(Waited(token, request)))
                    return
            reply_to(reply)

        self.answered[token] = respond
        self.feed(Received(token, request))

    def answer(self, answer: Answer) -> None:
        respond = self.answered.get(answer.token)
        if respond is not None:
            respond(answer.reply)

    def settle(self) -> None:
        self.quorum.check(self)
        wanted = self.node.snapshot_to_fetch
        if wanted != self.download:
            self.download = wanted
            if wanted is not None:
                self.later(self.quorum.random.random() * 100, lambda: self.install(wanted))
        if self.node.next_deadline_ms != self.timer_ms and self.node.next_deadline_ms < float("inf"):
            due_ms = self.timer_ms = self.node.next_deadline_ms
            self.later(max(0.0, due_ms - self.quorum.now_ms), lambda: self.tick(due_ms))

    def tick(self, due_ms: float) -> None:
        if due_ms == self.timer_ms:
            self.timer_ms = -1.0
            self.feed(Tick())

    def install(self, snapshot: OffsetAndEpoch) -> None:
        if self.node.snapshot_to_fetch != snapshot or self.is_busy:
            self.download = None
            self.settle()
            return
        voters = self.quorum.snapshots[snapshot]
        self.log.install(snapshot, voters)
        self.feed(SnapshotInstalled(snapshot, voters))

    def later(self, delay_ms: float, work: Callable[[], None]) -> None:
        life = self.life
        self.quorum.later(delay_ms, lambda: work() if self.life == life and self.is_up else None)


class Quorum:
    host_type: type[Host] = Host

    def __init__(self, seed: int, *, voters: int, observers: int = 0, random: Random | None = None) -> None:
        self.random = random or SimRandom(seed)
        self.now_ms = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = 0
        self.marks = 0
        self.crash_at_persist = 0.0
        self.loss = 0.0
        self.delay_ms = 5.0
        # Pairs (from, to) that do not get through.
        self.cut: set[tuple[int, int]] = set()
        self.leaders: dict[int, ReplicaKey] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.committed: list[Entry] = []
        self.snapshots: dict[OffsetAndEpoch, VoterSet] = {}
        self.hosts: dict[int, Host] = {}
        self.bootstrap_voters = VoterSet()
        for node_id in range(1, voters + observers + 1):
            self.hosts[node_id] = self.host_type(self, node_id)
        keys = [self.hosts[node_id].key for node_id in range(1, voters + 1)]
        self.bootstrap_voters = VoterSet(tuple(Voter(key, (endpoint(key.id),)) for key in keys))

    def start(self) -> None:
        for host in self.hosts.values():
            self.later(self.random.random() * 20, host.start)

    def later(self, delay_ms: float, work: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (self.now_ms + delay_ms, self.sequence, work))

    def run(self, duration_ms: float, until: Callable[[], bool] | None = None) -> bool:
        end_ms = self.now_ms + duration_ms
        while self.events and self.events[0][0] <= end_ms:
            self.now_ms, _, work = heapq.heappop(self.events)
            work()
            if until is not None and until():
                return True
        self.now_ms = end_ms
        return until is None

    def mark(self, _record: Message | None = None) -> object:
        self.marks += 1
        return self.marks

    # ---- the network

    def carry(self, sender: Host, send: Send) -> None:
        target_id = send.node_id if send.node_id > 0 else send.endpoint.port
        life = sender.life

        def fail() -> None:
            if sender.is_up and sender.life == life:
                sender.feed(Failed(send.id))

        def succeed(reply: Reply) -> None:
            if sender.is_up and sender.life == life:
                sender.feed(Replied(send.id, reply))

        target = self.hosts[target_id]
        self.later(REQUEST_TIMEOUT_MS, fail)  # Ignored by the node if the answer came first.

        def arrive() -> None:
            if not target.is_up:
                self.later(self.delay_ms, fail)
                return
            target_life = target.life
            target.resets.append(fail)

            def back(reply: Reply) -> None:
                if fail in target.resets:
                    target.resets.remove(fail)
                if target.life == target_life and self.passes(target_id, sender.id):
                    self.later(self.random.random() * self.delay_ms, lambda: succeed(reply))

            target.receive(send.request, back)

        if self.passes(sender.id, target_id):
            self.later(self.random.random() * self.delay_ms, arrive)

    def passes(self, source: int, target: int) -> bool:
        return (source, target) not in self.cut and self.random.random() >= self.loss

    # ---- what must hold

    def check(self, host: Host) -> None:
        node = host.node
        assert node.high_watermark >= host.high_watermark, "the high watermark fell"
        assert node.high_watermark <= host.log.end_offset, "committed, but not there"
        for offset in range(max(host.high_watermark, host.log.start_offset), node.high_watermark):
            self.check_committed(host, offset)
        host.high_watermark = node.high_watermark
        if isinstance(node.role, Leader) and self.leaders.get(node.epoch) is None:
            self.check_complete(host)
        if isinstance(node.role, Leader):
            first = self.leaders.setdefault(node.epoch, host.key)
            assert first == host.key, f"two leaders of epoch {node.epoch}: {first} and {host.key}"

    def check_committed(self, host: Host, offset: int) -> None:
        entry = host.log.at(offset)
        if offset < len(self.committed):
            assert self.committed[offset] == entry, f"offset {offset} was {self.committed[offset]}, now {entry}"
        else:
            assert offset == len(self.committed), "committed with a gap"
            self.committed.append(entry)

    def check_complete(self, host: Host) -> None:
        assert host.log.end_offset >= len(self.committed), f"the leader of {host.node.epoch} lacks what was committed"
        for offset in range(host.log.start_offset, len(self.committed)):
            assert host.log.at(offset) == self.committed[offset], f"the leader has another entry at {offset}"

    def check_vote(self, host: Host) -> None:
        node = host.node
        if node.standing.state.voted is not None:
            first = self.votes.setdefault((host.key, node.epoch), node.standing.state.voted)
            assert first == node.standing.state.voted, f"{host.key} voted twice in epoch {node.epoch}"

    # ---- what happens to it

    def leader(self) -> Host | None:
        """The leader of the newest epoch that has one."""
        leading = [host for host in self.hosts.values() if host.is_up and isinstance(host.node.role, Leader)]
        return max(leading, key=lambda host: host.node.epoch, default=None)

    def snapshot(self, host: Host, *, is_cut: bool = True) -> None:
        earlier = host.log.latest_snapshot or OffsetAndEpoch(0, 0)
        if not host.is_up or host.is_busy or host.high_watermark <= max(host.log.start_offset, earlier.offset):
            return
        offset = host.high_watermark
        voters = host.node.history.at(offset)
        host.log.take_snapshot(offset, voters, is_cut=is_cut)
        known = self.snapshots.setdefault(host.log.latest_snapshot or OffsetAndEpoch(0, 0), voters)
        assert known == voters, "two snapshots of one offset differ"

    def ask(self, request: Request) -> list[Reply]:
        """Asks the leader. The list gets the answer when it comes."""
        answers: list[Reply] = []
        leader = self.leader()
        if leader is not None:
            leader.receive(request, answers.append)
        return answers

    def heal(self) -> None:
        self.cut.clear()
        self.loss = self.crash_at_persist = 0.0
        self.delay_ms = 5.0
        for host in self.hosts.values():
            host.sync_ms = 15.0
            if not host.is_up:
                host.start()

    def is_converged(self) -> bool:
        """One leader, and everybody has committed all that it has."""
        leader = self.leader()
        if leader is None or leader.node.leadership.active_from_offset is None:
            return False
        end_offset = leader.log.end_offset
        return all(
            host.is_up and host.high_watermark == end_offset and host.node.epoch == leader.node.epoch
            for host in self.hosts.values()
        )


def endpoint(node_id: int) -> Endpoint:
    """The port tells the model whose it is."""
    return Endpoint("C", "host", node_id)


__all__ = ["AddVoter", "Quorum", "RemoveVoter", "Resign", "Vote", "endpoint"]
