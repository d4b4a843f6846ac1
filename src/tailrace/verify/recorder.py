"""Writes a history while clients work: one method for each moment that the checker wants to know of.

Call `send`, `commit` and `abort` before the client is asked, and end what they return once, with what came of it; the
other methods once the thing is done. The lines must stand in the order in which things happened, so all processes of a
history share one recorder, or each line has a `time` and the files are merged by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from typing import Any

from tailrace.verify.events import Value


class Recorder:
    def __init__(self, write: Callable[[str], object], *, now: Callable[[], float] | None = None) -> None:
        """`write` takes whole lines; `now` gives the `time` of each, if several histories are to be merged."""
        self._write = write
        self._now = now
        self._ids = count(1)

    def process(
        self, name: str | int, *, isolation: str = "read_uncommitted", idempotent: bool = True, acks: int = -1
    ) -> Process:
        """One client: a producer, a consumer, or both in a loop. `acks` is -1 for all."""
        flags: dict[str, Any] = {} if idempotent else {"idempotent": False}
        return Process(self, name, isolation, flags if acks == -1 else {**flags, "acks": acks})

    def write_event(self, event: dict[str, Any]) -> None:
        if self._now is not None:
            event["time"] = self._now()
        self._write(json.dumps(event, separators=(",", ":")) + "\n")

    def next_id(self) -> int:
        return next(self._ids)


class Process:
    def __init__(self, recorder: Recorder, name: str | int, isolation: str, flags: dict[str, Any]) -> None:
        self._recorder = recorder
        self._name = name
        self._isolation = isolation
        self._flags = flags  # Further fields of the `invoke` lines of its sends.

    def send(self, partition: str | None, value: Value) -> Send:
        """Several may be under way. `partition` is None if the client chooses it."""
        operation = Send(self, self._recorder.next_id(), partition, value)
        self.write("invoke", "send", id=operation.id, records=[[partition, value]], **self._flags)
        return operation

    def begin(self) -> None:
        self.write("ok", "begin")

    def offsets(self, group: str, offsets: Mapping[str, int]) -> None:
        """The offsets of the input have gone into the open transaction."""
        self.write("ok", "offsets", group=group, offsets=dict(offsets))

    def commit(self) -> Ending:
        self.write("invoke", "commit")
        return Ending(self, "commit")

    def abort(self) -> Ending:
        self.write("invoke", "abort")
        return Ending(self, "abort")

    def polled(self, records: Iterable[tuple[str, int, Value]]) -> None:
        """(partition, offset, value) of each, in the order in which the client gave them."""
        self.write("ok", "poll", isolation=self._isolation, records=list(records))

    def assigned(self, partitions: Collection[str]) -> None:
        """A rebalance gave it these, among them any that it had and fetches from the committed offset again."""
        self.write("ok", "assign", partitions=list(partitions))

    def sought(self, partitions: Collection[str]) -> None:
        self.write("ok", "seek", partitions=list(partitions))

    def drained(self, partitions: Collection[str] | None = None) -> None:
        """All that these partitions held (None: all partitions) has been polled, by whomever."""
        named = {} if partitions is None else {"partitions": list(partitions)}
        self.write("ok", "drain", **named)

    def taken(self, group: str, records: Iterable[tuple[str, int, Value, int]]) -> None:
        """(partition, offset, value, delivery count) of what a share group has given it, as soon as it is there."""
        self.write("ok", "take", group=group, records=list(records))

    def settle(self, group: str, records: Iterable[tuple[str, int, str]]) -> Settling:
        """(partition, offset, accept, release or reject)."""
        operation = Settling(self, self._recorder.next_id())
        self.write("invoke", "settle", id=operation.id, group=group, records=list(records))
        return operation

    def emptied(self, group: str, partitions: Collection[str] | None = None) -> None:
        """All that these partitions held (None: all partitions) is done with for the share group."""
        named = {} if partitions is None else {"partitions": list(partitions)}
        self.write("ok", "drain", group=group, **named)

    def write(self, kind: str, operation: str, **fields: Any) -> None:
        self._recorder.write_event({"process": self._name, "type": kind, "op": operation, **fields})


class Send:
    """A send under way. Without an end its outcome is unknown."""

    def __init__(self, process: Process, number: int, partition: str | None, value: Value) -> None:
        self.id = number
        self._process = process
        self._partition = partition
        self._value = value

    def ok(self, offset: int | None = None, partition: str | None = None) -> None:
        """`offset` is None where the client does not tell it."""
        record = [partition or self._partition, offset, self._value]
        self._process.write("ok", "send", id=self.id, records=[record])

    def fail(self) -> None:
        """It certainly has not been stored, and never will be. A timeout is no such thing."""
        self._process.write("fail", "send", id=self.id)

    def info(self) -> None:
        self._process.write("info", "send", id=self.id)


class Settling:
    """What a member has said of records, under way. Without an end its outcome is unknown."""

    def __init__(self, process: Process, number: int) -> None:
        self.id = number
        self._process = process

    def ok(self, refused: Iterable[tuple[str, int]] = ()) -> None:
        """All of it counts, but for what was refused."""
        self._process.write("ok", "settle", id=self.id, refused=list(refused))

    def info(self) -> None:
        self._process.write("info", "settle", id=self.id)


class Ending:
    """A commit or abort under way. Without an end its outcome is unknown."""

    def __init__(self, process: Process, operation: str) -> None:
        self._process = process
        self._operation = operation

    def ok(self) -> None:
        self._process.write("ok", self._operation)

    def fail(self) -> None:
        """This request had no effect, and never will have."""
        self._process.write("fail", self._operation)

    def info(self) -> None:
        self._process.write("info", self._operation)
