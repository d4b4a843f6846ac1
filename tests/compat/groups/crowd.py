"""The members of one group as processes, started, watched, closed and killed; and the writer of what they read."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import Message, Producer

from .account import Event, Summary, check_account, owned_now

ROOT = Path(__file__).parents[3]
# Long enough for a busy machine of two cores, on which eight JVMs start; nothing that works comes near it.
WAIT_S = 60.0


class Member:
    """A process that keeps a journal on its standard output and closes when its standard input ends."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.journal: list[Event] = []
        self.end_ns: int | None = None
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
        )
        self._complaints: list[bytes] = []
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._drain)]
        for thread in self._threads:
            thread.start()

    @property
    def is_alive(self) -> bool:
        return self.end_ns is None

    @property
    def owned(self) -> set[int]:
        return owned_now(self.journal)

    def story(self) -> str:
        """The end of its journal and its complaints, for the message of a failure."""
        events = [f"{event.kind} {str(event.what)[:120]}" for event in self.journal if event.kind != "read"]
        return f"{self.name} (exit code {self._process.poll()}): {events[-8:]} {b''.join(self._complaints)[-1500:]!r}"

    def assert_running(self) -> None:
        assert self._process.poll() is None, f"it ended by itself: {self.story()}"

    def kill(self) -> None:
        """What it does after this moment it does not do: it is dead."""
        self.end_ns = time.monotonic_ns()
        self._process.kill()
        self._reap()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and it is not heard."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def ask_to_close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait_closed(self) -> None:
        try:
            code = self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it does not close: {self.story()}") from None
        self.end_ns = time.monotonic_ns()
        self._reap()
        assert code == 0, self.story()

    def _reap(self) -> None:
        self._process.wait(WAIT_S)
        for thread in self._threads:
            thread.join(WAIT_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A member that is killed may leave half a line.
            if line.endswith(b"\n"):
                self.journal.append(Event(*json.loads(line)))

    def _drain(self) -> None:
        assert self._process.stderr is not None
        self._complaints.extend(self._process.stderr)


class Writer:
    """Writes 0, 1, 2, ... to each partition of a topic in turn, until told to stop, and loses nothing."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, records_per_second: int = 1000) -> None:
        self.topic = topic
        self.written = [0] * partitions
        self._failed: list[str] = []
        self._pace = records_per_second
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "socket.timeout.ms": 4000,
                "request.timeout.ms": 4000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 200,
                "log_level": 2,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)

    def finish(self) -> list[int]:
        """How many records each partition has, all acknowledged."""
        self.stop()
        left = self._producer.flush(2 * WAIT_S)
        assert left == 0, f"{left} records were not acknowledged"
        assert not self._failed, self._failed[:3]
        return self.written

    def _run(self) -> None:
        started, sent = time.monotonic(), 0
        while not self._stop.is_set():
            while sent < (time.monotonic() - started) * self._pace:
                partition = sent % len(self.written)
                value = str(self.written[partition])
                self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                self.written[partition] += 1
                sent += 1
            self._producer.poll(0.005)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self._failed.append(f"{message.partition()}: {error}")


class Crowd:
    """A context manager: what is left of the members at its end is killed, and its writers stop."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.topic = topic
        self.members: list[Member] = []
        self._writers: list[Writer] = []
        self._partitions = partitions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.stop()
        for member in self.alive:
            member.kill()

    def write(self) -> Writer:
        """Begins to write to the topic. A test that fails does not leave it to the next one."""
        self._writers.append(Writer(self.bootstrap, self.topic, self._partitions))
        return self._writers[-1]

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.is_alive]

    def add(self, program: Sequence[str], **settings: object) -> Member:
        """`program` is a command that takes bootstrap, group, topic and settings."""
        name = f"member-{len(self.members)}"
        words = [*program, self.bootstrap, self.group, self.topic, json.dumps(settings)]
        self.members.append(Member(name, words))
        return self.members[-1]

    def wait_shared(self, *, without: Member | None = None) -> None:
        """Until each partition has an owner, and every live member its fair share; one may be left out."""
        deadline = time.monotonic() + WAIT_S
        members = [member for member in self.alive if member is not without]
        fair = self._partitions // len(members)
        while True:
            owned = [member.owned for member in members]
            is_whole = sorted(partition for each in owned for partition in each) == list(range(self._partitions))
            if is_whole and all(fair <= len(each) <= fair + 1 for each in owned):
                return
            for member in members:
                member.assert_running()
            assert time.monotonic() < deadline, f"no fair share: {owned}\n{self._stories()}"
            time.sleep(0.02)

    def wait_read(self, written: Sequence[int]) -> None:
        """Until every partition was read to its end."""
        deadline = time.monotonic() + WAIT_S
        while True:
            read = [0] * self._partitions
            for member in self.members:
                for event in list(member.journal):
                    if event.kind == "read":
                        for partition, offset, _ in event.what:
                            read[partition] = max(read[partition], offset + 1)
            if read == list(written):
                return
            assert time.monotonic() < deadline, f"read up to {read} of {written}\n{self._stories()}"
            time.sleep(0.05)

    def close(self) -> None:
        """All at once, as when a service is stopped."""
        closing = self.alive
        for member in closing:
            member.ask_to_close()
        for member in closing:
            member.wait_closed()

    def check(self, written: Sequence[int], *, may_reread: bool = False) -> Summary:
        assert not self.alive, "close the members first"
        journals = {member.name: member.journal for member in self.members}
        ends_ns = {member.name: member.end_ns for member in self.members if member.end_ns is not None}
        return check_account(journals, ends_ns, written, may_reread=may_reread)

    def _stories(self) -> str:
        return "\n".join(member.story() for member in self.members)


def python_member(library: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", f"tests.compat.groups.member_{library}"]
