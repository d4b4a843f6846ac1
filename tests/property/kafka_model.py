"""A model of Kafka as its clients see it, with clients that record a history: correct by being simple.

A record takes effect at once, when it is sent; what may be lost is the answer. A transaction is open, committed or
aborted; a reader at read_committed sees nothing from the first record of an open one on.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from tailrace.verify.recorder import Ending, Process, Recorder, Send

PARTITIONS = ("t-0", "t-1", "t-2")


class Transaction:
    def __init__(self) -> None:
        self.state = "open"
        self.is_confirmed = False  # Its commit was answered.
        self.is_unknown = False  # Its commit was answered by a timeout.
        self.partitions: set[str] = set()
        self.values: list[str] = []


class Entry:
    def __init__(self, value: str | None, transaction: Transaction | None) -> None:
        self.value = value  # None: a marker.
        self.transaction = transaction


class Kafka:
    def __init__(self) -> None:
        self.logs: dict[str, list[Entry]] = {name: [] for name in PARTITIONS}
        self.times_sent: Counter[str] = Counter()

    def append(self, name: str, value: str, transaction: Transaction | None) -> int:
        self.logs[name].append(Entry(value, transaction))
        if transaction is not None:
            transaction.partitions.add(name)
        return len(self.logs[name]) - 1

    def decide(self, transaction: Transaction, state: str) -> None:
        transaction.state = state
        for name in sorted(transaction.partitions):
            self.logs[name].append(Entry(None, transaction))

    def read(self, name: str, start: int, is_committed: bool) -> list[tuple[str, int, str]]:
        found = []
        for offset, entry in enumerate(self.logs[name]):
            state = entry.transaction.state if entry.transaction is not None else "committed"
            if is_committed and state == "open":
                break
            if offset >= start and entry.value is not None and not (is_committed and state == "aborted"):
                found.append((name, offset, entry.value))
        return found

    def end(self, name: str) -> int:
        return len(self.logs[name])

    def is_certain(self, name: str, offset: int) -> bool:
        """Whether it was sent once, and all who read the history know that it must be there."""
        value, transaction = self.logs[name][offset].value, self.logs[name][offset].transaction
        return value is not None and self.times_sent[value] == 1 and (transaction is None or transaction.is_confirmed)

    def aborted(self) -> list[tuple[str, int, str]]:
        """Records of values that were sent once, which all who read the history know to be aborted."""
        return [
            (name, offset, entry.value)
            for name, log in self.logs.items()
            for offset, entry in enumerate(log)
            if entry.value is not None
            and entry.transaction is not None
            and entry.transaction.state == "aborted"
            and not entry.transaction.is_unknown
            and self.times_sent[entry.value] == 1
        ]

    def is_read_after(self, commit: dict[str, Any], events: list[dict[str, Any]]) -> bool:
        """Whether the last poll, which reads everything, has a record of the transaction that is committed there."""
        own = self._sent_before(commit, events)
        last = next(event for event in reversed(events) if event["op"] == "poll")
        return any(value in own and self.times_sent[value] == 1 for _name, _offset, value in last["records"])

    def circles(self, events: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
        """Polls that close a circle, and where to put them: just before the commit of the transaction that was read."""
        commits = [event for event in events if event["op"] == "commit" and event["type"] == "ok"]
        writes = [(commit, self._sent_before(commit, events)) for commit in commits]
        found = []
        for early, (first, first_values) in enumerate(writes):
            for second, second_values in writes[early + 1 :]:
                flows = any(
                    event["op"] == "poll" and any(record[2] in first_values for record in event["records"])
                    for event in _since_begin(second, events)
                )
                records = [
                    (name, offset, entry.value)
                    for name, log in self.logs.items()
                    for offset, entry in enumerate(log)
                    if entry.value in second_values and self.is_certain(name, offset)
                ]
                if flows and records and all(self.times_sent[value] == 1 for value in first_values):
                    at = max(index for index, event in enumerate(events) if event is first) - 1
                    at = max(i for i in range(at + 1) if events[i]["process"] == first["process"])
                    poll = {"process": first["process"], "type": "ok", "op": "poll", "isolation": "read_committed"}
                    found.append((at, {**poll, "records": [list(records[0])]}))
        return found

    def _sent_before(self, commit: dict[str, Any], events: list[dict[str, Any]]) -> set[str]:
        return {
            record[1]
            for event in _since_begin(commit, events)
            if event["op"] == "send" and event["type"] == "invoke"
            for record in event["records"]
        }


def _since_begin(commit: dict[str, Any], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of its process from its last `begin` on."""
    own = []
    for event in events:
        if event["process"] == commit["process"]:
            if event["op"] == "begin":
                own = []
            own.append(event)
        if event is commit:
            break
    return own


class Consumer:
    def __init__(self, kafka: Kafka, process: Process, is_committed: bool) -> None:
        self.kafka = kafka
        self.process = process
        self.is_committed = is_committed
        self.positions = dict.fromkeys(PARTITIONS, 0)

    def poll(self, names: tuple[str, ...] = PARTITIONS, count: int = 1 << 30) -> None:
        records = []
        for name in names:
            found = self.kafka.read(name, self.positions[name], self.is_committed)[:count]
            records += found
            if found:
                self.positions[name] = found[-1][1] + 1
        self.process.polled(records)

    def move(self, random: Random) -> None:
        name = random.choice(PARTITIONS)
        self.positions[name] = random.randint(0, self.kafka.end(name))
        random.choice((self.process.assigned, self.process.sought))([name])


class Producer:
    """With transactions, or without any."""

    def __init__(self, kafka: Kafka, process: Process, random: Random, values: Values) -> None:
        self.kafka = kafka
        self.process = process
        self.random = random
        self.values = values
        self.transaction: Transaction | None = None
        self.consumer = Consumer(kafka, process, True)
        self.waiting: list[tuple[Send, str, int]] = []  # Stored, without an answer yet.
        self.ending: tuple[Ending, Transaction] | None = None

    def send(self) -> None:
        random = self.random
        name = random.choice(PARTITIONS)
        value = self.values.next(random, in_transaction=self.transaction is not None)
        self.kafka.times_sent[value] += 1
        send = self.process.send(random.choice((name, name, None)), value)
        fate = random.random()
        if fate < 0.05:
            send.fail()
            self.kafka.times_sent[value] -= 1
            return
        offset = self.kafka.append(name, value, self.transaction) if fate > 0.1 else None
        if self.transaction is not None:
            self.transaction.values.append(value)
        if fate < 0.2 or offset is None:
            if random.random() < 0.5:
                send.info()
            if self.transaction is None:
                self.values.again.append(value)
        elif fate < 0.5:
            self.waiting.append((send, name, offset))
        else:
            send.ok(random.choice((offset, offset, offset, None)), name)

    def answer(self) -> None:
        for send, name, offset in self.waiting:
            send.ok(offset, name)
        self.waiting = []

    def begin(self) -> None:
        self.answer()
        self.process.begin()
        self.transaction = Transaction()

    def end(self) -> None:
        """The decision falls now; the answer comes with the next step, or never."""
        transaction, random = self.transaction, self.random
        assert transaction is not None
        self.answer()
        self.process.offsets("group", {"input-0": 1})
        self.transaction = None
        fate = random.random()
        if fate < 0.2:
            self.process.abort().ok()
            self.kafka.decide(transaction, "aborted")
        elif fate < 0.3:
            self.process.commit().fail()
            self.kafka.decide(transaction, "aborted")
        elif fate < 0.4:
            self.process.commit().info()
            transaction.is_unknown = True
            self.kafka.decide(transaction, random.choice(("aborted", "committed")))
        elif fate < 0.5:
            self.values.timing_out.append(transaction)  # Its process is gone, and comes back under the same name.
            return
        else:
            self.ending = (self.process.commit(), transaction)
            self.kafka.decide(transaction, "committed")
        if transaction.state == "aborted":
            self.values.aborted += transaction.values

    def step(self) -> None:
        if self.ending is not None:
            ending, transaction = self.ending
            if self.random.random() < 0.9:
                ending.ok()
                transaction.is_confirmed = True
            self.ending = None
        elif self.transaction is None:
            self.begin()
        else:
            self.random.choice((self.send, self.send, self.send, self.end, self.answer, self._poll))()

    def _poll(self) -> None:
        self.consumer.poll((self.random.choice(PARTITIONS),), self.random.randint(1, 5))


class Values:
    """What is sent next: something new, or again what was aborted (in a transaction) or has no answer (outside)."""

    def __init__(self) -> None:
        self.count = 0
        self.aborted: list[str] = []
        self.again: list[str] = []
        self.timing_out: list[Transaction] = []

    def next(self, random: Random, *, in_transaction: bool) -> str:
        repeated = self.aborted if in_transaction else self.again
        if repeated and random.random() < 0.5:
            return repeated.pop()
        self.count += 1
        return f"v{self.count}"


def record_history(random: Random, steps: int) -> tuple[list[str], Kafka]:
    lines: list[str] = []
    kafka, values, recorder = Kafka(), Values(), Recorder(lines.append)
    plain = [Producer(kafka, recorder.process(f"p{number}"), random, values) for number in range(2)]
    loops = [
        Producer(kafka, recorder.process(f"t{number}", isolation="read_committed"), random, values)
        for number in range(3)
    ]
    consumers = [
        Consumer(kafka, recorder.process(f"{isolation}-{number}", isolation=isolation), isolation == "read_committed")
        for isolation in ("read_committed", "read_uncommitted")
        for number in range(2)
    ]
    for _ in range(steps):
        match random.choice(("plain", "loop", "loop", "loop", "poll", "move", "answer", "time out")):
            case "plain":
                random.choice(plain).send()
            case "loop":
                random.choice(loops).step()
            case "poll":
                random.choice(consumers).poll(count=random.randint(1, 10))
            case "move" if random.random() < 0.3:
                random.choice(consumers).move(random)
            case "answer":
                random.choice(plain).answer()
            case "time out" if values.timing_out:
                transaction = values.timing_out.pop()
                kafka.decide(transaction, "aborted")
                values.aborted += transaction.values
    open_ones = [*values.timing_out, *(loop.transaction for loop in loops if loop.transaction is not None)]
    for transaction in open_ones:
        kafka.decide(transaction, "aborted")
    drainer = Consumer(kafka, recorder.process("drainer", isolation="read_committed"), True)
    drainer.poll()
    drainer.process.drained()
    return lines, kafka
