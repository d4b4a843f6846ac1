"""Where the stories of Raft are played: a quorum without chance, whose nodes are known by their numbers.

Messages take half a millisecond, a write of the state one, a sync one and a half; the timeouts of node 1 are the
shortest. So node 1 leads first, unless the story has it otherwise. What is told of a command: changes of roles by the
event of the table, votes, what is committed, what is cut, and refusals. Commands are the methods of `Stage`; a node is
a number, options are `name=value`."""

from collections.abc import Callable

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import Uuid
from tailrace.raft.messages import (
    AddVoter,
    BeginEpoch,
    EndEpoch,
    Fetch,
    QuorumState,
    Ready,
    RemoveVoter,
    Reply,
    Request,
    Resign,
    Tick,
    Vote,
)
from tailrace.raft.roles import Candidate, Follower, Prospective, Role, Standing, Unattached
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from tailrace.wire.apis.stored_records import KRaftVersionRecord, LeaderChangeMessage
from tailrace.wire.schema import Message
from tests.unit.raft.quorum import Host, Quorum, endpoint

SHARES = {1: 0.1, 2: 0.5, 3: 0.9, 4: 0.7, 5: 0.3}


class NoChance:
    """Draws the same share always."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._uuids = 0

    def random(self) -> float:
        return self._share

    def randrange(self, stop: int) -> int:
        return int(stop * (1 - self._share))

    def uuid(self) -> bytes:
        self._uuids += 1
        return bytes([self._uuids]) * 16


class Actor(Host):
    def __init__(self, stage: "Stage", node_id: int) -> None:
        super().__init__(stage, node_id)
        self.random = NoChance(SHARES[node_id])
        self.stage = stage

    def receive(self, request: Request, reply_to: Callable[[Reply], None]) -> None:
        def tell(reply: Reply) -> None:
            if isinstance(request, Vote):
                kind = "pre-vote" if request.is_pre_vote else "vote"
                self.tell(f"{'gives' if reply.is_granted else 'denies'} {request.candidate.id} its {kind}")
            elif isinstance(request, Fetch) and request.replica.id != self.id and (fault := describe_fault(reply)):
                self.tell(f"answers the fetch of {request.replica.id}: {fault}", only_once=True)
            reply_to(reply)

        super().receive(request, tell)

    def execute(self, ready: Ready) -> None:
        if ready.truncate_to is not None:
            self.tell(f"cuts its log to {ready.truncate_to}")
        super().execute(ready)

    def settle(self) -> None:
        if self.node.high_watermark > self.high_watermark:
            self.tell(f"knows {self.node.high_watermark} committed")
        super().settle()

    def tell(self, line: str, *, only_once: bool = False) -> None:
        """`only_once` in what is told of a command: who asks around does so again and again."""
        if not only_once or not any(each.endswith(f"ms  {self.id} {line}") for each in self.stage.lines):
            self.stage.lines.append(f"{self.quorum.now_ms:5.0f} ms  {self.id} {line}")


class Stage(Quorum):
    host_type = Actor

    def __init__(self, rows: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        change = Standing._change

        def tell_change(standing: Standing, event: str, role: Role, state: QuorumState) -> None:
            source = type(standing.role).__name__
            change(standing, event, role, state)
            rows.add((source, event))
            actor = self.hosts[standing._key.id]
            actor.tell(f"{event}: {source} -> {type(role).__name__}{describe_state(state)}")  # type: ignore[attr-defined]

        monkeypatch.setattr(Standing, "_change", tell_change)

    def do(self, command: str) -> list[str]:
        name, *words = command.split()
        options = dict(word.split("=") for word in words if "=" in word)
        self.lines = []
        getattr(self, "do_" + name.replace("-", "_"))(*(word for word in words if "=" not in word), **options)
        return self.lines

    def mark(self, record: Message | None = None) -> object:
        return {LeaderChangeMessage: "begin", KRaftVersionRecord: "version"}[type(record)]

    def host(self, number: str) -> Host:
        return self.hosts[int(number)]

    def answer_of(self, number: str, request: Request) -> None:
        """Until the answer is there, if it comes within 20 ms."""
        answers: list[Reply] = []
        Host.receive(self.host(number), request, answers.append)
        self.run(20, until=lambda: bool(answers))
        assert answers, "no answer"
        verdict = ("granted" if answers[0].is_granted else "denied") if isinstance(request, Vote) else ""
        self.lines.append(f"{number} answers: {describe_reply(answers[0], verdict)}")

    # ---- the commands

    def do_quorum(self, *, voters: str, observers: str = "0") -> None:
        super().__init__(0, voters=int(voters), observers=int(observers), random=NoChance(0.1))
        for host in self.hosts.values():
            host.start()

    def do_run(self, duration_ms: str) -> None:
        self.run(float(duration_ms))

    def do_settle(self) -> None:
        """How all come to follow one leader is another story."""
        self.run(100)
        leader = self.leader()
        assert leader is not None, "nobody leads"
        assert self.is_converged(), "not all follow"
        self.lines = [f"{self.now_ms:5.0f} ms  {leader.id} leads epoch {leader.node.epoch}, all follow"]

    def do_status(self) -> None:
        self.lines += [describe_host(host) for host in self.hosts.values()]

    def do_cut(self, number: str, *others: str) -> None:
        """From some, or from all."""
        for other in map(int, others or self.hosts):
            self.cut |= {(int(number), other), (other, int(number))}

    def do_deafen(self, number: str) -> None:
        """It can send, and gets nothing."""
        self.cut |= {(other, int(number)) for other in self.hosts}

    def do_heal(self) -> None:
        self.cut.clear()

    def do_append(self, number: str, *contents: str) -> None:
        host = self.host(number)
        host.log.entries += [(host.node.epoch, content) for content in contents]  # type: ignore[misc]
        host.sync()

    def do_crash(self, number: str) -> None:
        """The process: its connections are reset."""
        self.host(number).crash(power_loss=False)

    def do_lose_power(self, number: str) -> None:
        self.host(number).crash(power_loss=True)

    def do_start(self, number: str) -> None:
        self.host(number).start()

    def do_damage(self, number: str, *, keep: str) -> None:
        """What was synced from `keep` on is gone, and the node notices at its start."""
        host = self.host(number)
        host.crash(power_loss=True)
        host.log.truncate(int(keep))
        host.state = host.state._replace(must_catch_up=True)
        host.start()

    def do_timeout(self, number: str) -> None:
        """It has waited long enough, for whatever it waits."""
        host = self.host(number)
        role = host.node.role
        if isinstance(role, Unattached):
            role.election_deadline_ms = self.now_ms
        elif isinstance(role, Follower):
            role.fetch_deadline_ms = self.now_ms
        else:
            assert isinstance(role, Prospective | Candidate), "a leader and one that has resigned wait for others"
            role.deadline_ms = self.now_ms
        host.feed(Tick())

    def do_resign(self, number: str) -> None:
        self.host(number).feed(Resign())

    def do_snapshot(self, number: str) -> None:
        self.snapshot(self.host(number))

    def do_add(self, number: str, *, timeout: str = "1000") -> None:
        self.change_voters(AddVoter(Voter(self.host(number).key, (endpoint(int(number)),)), int(timeout)))

    def do_remove(self, number: str) -> None:
        self.change_voters(RemoveVoter(self.host(number).key))

    def change_voters(self, request: Request) -> None:
        leader = self.leader()
        assert isinstance(leader, Actor), "a change is asked of a leader"
        leader.receive(request, lambda reply: leader.tell("answers the client: " + describe_reply(reply)))

    def do_vote(self, number: str, *, candidate: str, epoch: str, last: str = "", disk: str = "") -> None:
        self.answer_of(number, self.vote(number, candidate, epoch, last, disk, is_pre_vote=False))

    def do_pre_vote(self, number: str, *, candidate: str, epoch: str, last: str = "", disk: str = "") -> None:
        self.answer_of(number, self.vote(number, candidate, epoch, last, disk, is_pre_vote=True))

    def vote(self, number: str, candidate: str, epoch: str, last: str, disk: str, *, is_pre_vote: bool) -> Vote:
        """`last` is offset@epoch, as the candidate has it if nothing is said; `disk` says that another one is meant."""
        asking, asked = self.host(candidate), self.host(number)
        key = ReplicaKey(asked.id, Uuid(disk.encode().ljust(16))) if disk else asked.key
        end = OffsetAndEpoch(*map(int, last.split("@"))) if last else asking.node.last
        return Vote(int(epoch), asking.key, key, end, is_pre_vote)

    def do_begin(self, number: str, *, leader: str, epoch: str) -> None:
        key = self.host(number).key
        self.answer_of(number, BeginEpoch(int(epoch), int(leader), key, (endpoint(int(leader)),)))

    def do_end(self, number: str, *, leader: str, epoch: str, successors: str) -> None:
        keys = tuple(self.host(each).key for each in successors.split(","))
        self.answer_of(number, EndEpoch(int(epoch), int(leader), keys, ()))

    def do_fetch(self, number: str, *, replica: str, epoch: str, offset: str, last: str) -> None:
        self.answer_of(number, Fetch(int(epoch), self.host(replica).key, int(offset), int(last), 0))


# ---- how it is told


def describe_state(state: QuorumState) -> str:
    words = [f", epoch {state.epoch}"]
    words += [] if state.voted is None else [f"voted {state.voted.id}"]
    words += [] if state.leader_id < 0 else [f"leader {state.leader_id}"]
    return ", ".join(words)


def describe_reply(reply: Reply, verdict: str = "") -> str:
    known = f"epoch {reply.epoch}, " + ("no leader" if reply.leader_id < 0 else f"leader {reply.leader_id}")
    known += f", high watermark {reply.fetched.high_watermark}" if reply.fetched is not None else ""
    message = f": {reply.message}" if reply.message else ""
    return f"{describe_fault(reply) or verdict or 'done'}{message} ({known})"


def describe_fault(reply: Reply) -> str:
    """What keeps a replica from going on as it is."""
    fetched = reply.fetched
    if reply.error is not ErrorCode.NONE:
        return reply.error.name
    if fetched is not None and fetched.diverging is not None:
        return f"your log parts from mine after {fetched.diverging.offset} of epoch {fetched.diverging.epoch}"
    if fetched is not None and fetched.snapshot is not None:
        return f"take my snapshot up to {fetched.snapshot.offset}"
    return ""


def describe_host(host: Host) -> str:
    log = host.log
    entries = [f"{epoch}:{describe_entry(content)}" for epoch, content in log.entries]
    entries = [f"snapshot {log.start_offset}"] * (log.start_offset > 0) + entries
    role = f"{type(host.node.role).__name__}{describe_state(host.node.standing.state)}" if host.is_up else "down"
    voice = ", no voice" if host.is_up and host.node.must_catch_up else ""
    return f"{host.id} {role}{voice}; committed {host.high_watermark}; log {' '.join(entries) or 'empty'}"


def describe_entry(content: object) -> str:
    return f"voters({','.join(map(str, content.ids))})" if isinstance(content, VoterSet) else str(content)
