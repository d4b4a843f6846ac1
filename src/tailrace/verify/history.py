"""What happened, gathered from the events in one pass: sends, transactions, and who read what.

What needs no hindsight is judged here: two readers that found two values at one offset, and a consumer whose offsets
go back. All else is for `writes`, `order` and `cycles`, once the whole history is known.

A process does one thing after the other, except for operations with an `id`. An operation that never ends, or begins
anew before it has ended (its process died and came back), has an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.verify.events import OPERATIONS, TYPES, Event, HistoryError, Value
from tailrace.verify.facts import Attempt, Drain, Operation, Outcome, Partition, Process, Read, Span, Transaction
from tailrace.verify.findings import Findings, quoted
from tailrace.verify.queues import SAYINGS, Delivery, QueueDrain, Queues

# Each read looks at all sends of its value. More than a stubborn client repeats is a payload that tells nothing apart.
ATTEMPTS_PER_VALUE = 1000


class History:
    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.events = 0
        self.partitions: dict[str, Partition] = {}
        self.processes: dict[str | int, Process] = {}
        self.attempts: list[Attempt] = []  # In the order in which they were sent.
        self.by_value: dict[Value, Attempt] = {}  # The first attempt of each value.
        self.resent: dict[Value, list[Attempt]] = {}  # All attempts of values that have several.
        self.transactions: list[Transaction] = []
        self.drains: list[Drain] = []
        self.queues = Queues(findings)
        self._do = {name: getattr(self, f"_{name}") for name in OPERATIONS}

    def add_all(self, events: Iterable[tuple[int, Event]]) -> None:
        processes = self.processes
        for line, event in events:
            try:
                kind, name = event["type"], event["process"]
                if kind not in TYPES:
                    raise ValueError(f"`type` is one of {', '.join(TYPES)}")
                process = processes.get(name) or self._meet(name)
                self._do[event["op"]](line, process, kind, event)
            except HistoryError:
                raise
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise HistoryError(line, _problem(event, error)) from None
            self.events += 1

    def attempts_of(self, value: Value) -> list[Attempt]:
        if value in self.resent:
            return self.resent[value]
        return [self.by_value[value]] if value in self.by_value else []

    # ---- producers

    def _begin(self, line: int, process: Process, kind: str, _event: Event) -> None:
        if kind == "ok":
            process.transaction = Transaction(process.name, line)
            process.has_transactions = True
            process.is_ending = False
            process.transaction.inputs, process.inputs = process.inputs, []
            self.transactions.append(process.transaction)

    def _send(self, line: int, process: Process, kind: str, event: Event) -> None:
        if kind == "invoke":
            is_idempotent = event.get("idempotent", True)
            attempts = []
            for name, value in event["records"]:
                _check_value(value)
                partition = self._partition(name) if name is not None else None
                attempt = Attempt(value, partition, process, line, is_idempotent)
                attempts.append(attempt)
                first = self.by_value.setdefault(value, attempt)
                if first is not attempt:
                    self._resend(line, first, attempt)
            self.attempts += attempts
            # A leader that dies takes with it what it alone has confirmed.
            is_proof = event.get("acks", "all") in ("all", -1)
            _invoke(process, event, Operation("send", line, attempts, None, is_proof))
            return
        operation = self._end("send", line, process, kind, event)
        attempts = operation.attempts
        outcome = Outcome(kind) if operation.is_proof or kind == "fail" else Outcome.INFO
        for attempt in attempts:
            attempt.end_line = line
            attempt.outcome = outcome
        if outcome is Outcome.OK and "records" in event:
            self._place(line, attempts, event["records"])

    def _resend(self, line: int, first: Attempt, attempt: Attempt) -> None:
        attempts = self.resent.setdefault(attempt.value, [first])
        attempts.append(attempt)
        if len(attempts) > ATTEMPTS_PER_VALUE:
            problem = (
                f"{quoted(attempt.value)} was sent more than {ATTEMPTS_PER_VALUE} times: different records must have"
            )
            raise HistoryError(line, f"{problem} different values, a number in front of them say")

    def _place(self, line: int, attempts: list[Attempt], records: list[tuple[str | None, int | None, Value]]) -> None:
        for attempt, (name, offset, value) in zip(attempts, records, strict=True):
            if value != attempt.value:
                raise HistoryError(line, f"the send of {quoted(attempt.value)} ends with the value {quoted(value)}")
            if name is not None:
                attempt.partition = self._partition(name)
            if offset is not None and attempt.partition is not None:
                attempt.offset = _check_offset(offset)
                attempt.partition.acknowledged.append(attempt)

    def _offsets(self, _line: int, process: Process, kind: str, _event: Event) -> None:
        if kind == "ok" and process.current is not None:
            process.current.with_offsets = True

    def _commit(self, line: int, process: Process, kind: str, event: Event) -> None:
        if kind == "invoke":
            _invoke(process, event, Operation("commit", line, [], self._ending("commit", line, process)))
            return
        operation = self._end("commit", line, process, kind, event)
        transaction = operation.transaction
        assert transaction is not None
        if kind != "fail":
            _may_be_committed(transaction, operation.line)
        if kind == "ok":
            transaction.outcome = Outcome.OK
            transaction.outcome_line = line
            if process.transaction is transaction:
                process.transaction = None

    def _abort(self, line: int, process: Process, kind: str, event: Event) -> None:
        if kind == "invoke":
            _invoke(process, event, Operation("abort", line, [], self._ending("abort", line, process)))
            return
        transaction = self._end("abort", line, process, kind, event).transaction
        assert transaction is not None
        if kind == "ok":
            transaction.aborted_line = line
            if process.transaction is transaction:
                process.transaction = None

    def _ending(self, name: str, line: int, process: Process) -> Transaction:
        if process.transaction is None:
            raise HistoryError(line, f"`{name}` of process {process.name}, which has not begun a transaction")
        process.is_ending = True
        return process.transaction

    def _end(self, name: str, line: int, process: Process, kind: str, event: Event) -> Operation:
        operation = process.open.pop(event.get("id"), None)
        if operation is None or operation.name != name:
            raise HistoryError(line, f"`{name}` of process {process.name} ends as {kind!r}, but was not invoked")
        return operation

    def finish(self) -> None:
        """There are no more events: a commit that has no answer may have had its effect."""
        for process in self.processes.values():
            for operation in process.open.values():
                _give_up(operation)

    # ---- consumers

    def _poll(self, line: int, process: Process, kind: str, event: Event) -> None:
        if kind != "ok":
            return
        is_committed = event.get("isolation") == "read_committed"
        spans = process.spans
        if process.has_transactions:
            # What was polled flows into the transaction that is open, or into the next one.
            inputs = process.current.inputs if process.current is not None else process.inputs
            inputs += [(self._partition(name), offset, is_committed) for name, offset, _value in event["records"]]
        for name, offset, value in event["records"]:
            partition, read = self._read(line, process, name, offset, value)
            if is_committed and not read.committed_line:
                read.committed_line = line
                read.committed_process = process.name
            span = spans.get(name)
            if span is not None and span.is_committed is is_committed and span.offsets[-1] < offset:
                span.offsets.append(offset)
                span.line = line
            else:
                self._open_span(line, process, partition, offset, is_committed)

    def _read(self, line: int, process: Process, name: str, offset: int, value: Value) -> tuple[Partition, Read]:
        partition = self.partitions.get(name) or self._partition(name)
        read = partition.reads.get(offset)
        if read is None:
            _check_value(value)
            partition.reads[_check_offset(offset)] = read = Read(value, process.name, line)
        elif read.value != value:
            _check_value(value)
            self.findings.add(
                "inconsistent-offset",
                line,
                f"offset {offset} of {name} holds {quoted(read.value)} (read by process {read.process}, line "
                f"{read.line}) and {quoted(value)} (read by process {process.name}, line {line})",
            )
        return partition, read

    def _open_span(self, line: int, process: Process, partition: Partition, offset: int, is_committed: bool) -> None:
        name = partition.name
        before = process.spans.get(name)
        if before is not None and before.is_committed is is_committed:
            last = before.offsets[-1]
            self.findings.add(
                "nonmonotonic-poll",
                line,
                f"process {process.name} read offset {last} of {name} (line {before.line}) and then "
                + (f"offset {offset}" if offset < last else "the same offset again")
                + f" (line {line}), though the partition was not assigned anew and it did not seek",
            )
        elif (last := process.left.pop(name, -1)) >= offset:
            self.findings.add(
                "rewound-poll",
                line,
                f"process {process.name} had read {name} up to offset {last}, and begins again at offset {offset} "
                f"(line {line}) after it was assigned the partition anew, or sought",
            )
        span = process.spans[name] = Span(process.name, is_committed, offset, line)
        partition.spans.append(span)

    def _assign(self, _line: int, process: Process, kind: str, event: Event) -> None:
        """The positions of these partitions begin anew; without `partitions`, all."""
        if kind != "ok":
            return
        for name in event.get("partitions") or list(process.spans):
            span = process.spans.pop(name, None)
            if span is not None:
                process.left[name] = span.offsets[-1]

    _seek = _assign

    def _drain(self, line: int, _process: Process, kind: str, event: Event) -> None:
        if kind == "ok":
            names = event.get("partitions")
            partitions = frozenset(names) if names is not None else None
            if "group" in event:
                self.queues.drains.append(QueueDrain(event["group"], line, partitions))
            else:
                self.drains.append(Drain(line, partitions))

    # ---- members of share groups

    def _take(self, line: int, process: Process, kind: str, event: Event) -> None:
        if kind != "ok":
            return
        for name, offset, value, *count in event["records"]:
            self._read(line, process, name, offset, value)
            delivery = Delivery(process.name, line, *(count or (0,)))
            self.queues.take(event["group"], (name, offset), value, delivery)

    def _settle(self, line: int, process: Process, kind: str, event: Event) -> None:
        if kind == "invoke":
            for _name, offset, saying in event["records"]:
                _check_offset(offset)
                if saying not in SAYINGS:
                    raise ValueError(f"of a record is said one of {', '.join(SAYINGS)}")
            said = [(event["group"], name, offset, saying) for name, offset, saying in event["records"]]
            _invoke(process, event, Operation("settle", line, [], None, said=said))
            return
        operation = self._end("settle", line, process, kind, event)
        if kind == "ok":
            refused = {(name, offset) for name, offset in event.get("refused", ())}
            for group, name, offset, saying in operation.said:
                if (name, offset) not in refused:
                    self.queues.settle(group, (name, offset), saying, process.name, line)

    # ---- names

    def _meet(self, name: str | int) -> Process:
        if type(name) not in (str, int):
            raise ValueError("`process` is a string or a number")
        process = self.processes[name] = Process(str(name))
        return process

    def _partition(self, name: str) -> Partition:
        partition = self.partitions.get(name)
        if partition is None:
            if type(name) is not str:
                raise ValueError('a partition is a string such as "orders-0"')
            partition = self.partitions[name] = Partition(name)
        return partition


def _invoke(process: Process, event: Event, operation: Operation) -> None:
    key = event.get("id")
    if key in process.open:
        _give_up(process.open[key])
    process.open[key] = operation


def _give_up(operation: Operation) -> None:
    """It has no answer, and may have had its effect."""
    if operation.name == "commit" and operation.transaction is not None:
        _may_be_committed(operation.transaction, operation.line)


def _may_be_committed(transaction: Transaction, invoked_line: int) -> None:
    if not transaction.commit_line:
        transaction.commit_line = invoked_line
    if transaction.outcome is Outcome.FAIL:
        transaction.outcome = Outcome.INFO


def _check_value(value: object) -> None:
    if type(value) not in (str, int):
        raise ValueError("a value is a string or a whole number, and tells one record from all others")


def _check_offset(offset: object) -> int:
    if type(offset) is not int or offset < 0:
        raise ValueError("an offset is a whole number from 0 on, or null where it is not known")
    return offset


def _problem(event: Event, error: Exception) -> str:
    if isinstance(error, KeyError):
        missing = [field for field in ("process", "type", "op") if field not in event]
        if missing:
            return f"has no `{missing[0]}`"
        if event["op"] not in OPERATIONS:
            return f"there is no operation {event['op']!r}; they are {', '.join(OPERATIONS)}"
        return f"`{event['op']}` has no {error}"
    return f"`{event.get('op')}` is not of the format: {error}"
