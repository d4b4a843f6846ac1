"""Short histories for tests: a recorder in memory, and sends and transactions that end as a test wants them to."""

from __future__ import annotations

from collections.abc import Collection

from tailrace.verify import Recorder, Report, verify
from tailrace.verify.recorder import Process

P, Q = "orders-0", "orders-1"


class Scribe:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.recorder = Recorder(self.lines.append)
        self.producer = self.recorder.process("p")
        self.other = self.recorder.process("o")
        self.reader = self.recorder.process("c", isolation="read_committed")
        self.loose = self.recorder.process("u", isolation="read_uncommitted")

    def sent(self, value: str, offset: int | None, partition: str = P, by: Process | None = None) -> None:
        (by or self.producer).send(partition, value).ok(offset)

    def write(self, end: str, *records: tuple[str, int, str], by: Process | None = None) -> None:
        """A whole transaction. `end`: "commit ok", "commit info", "abort ok" and so on, or "" for none."""
        process = by or self.producer
        process.begin()
        for partition, offset, value in records:
            self.sent(value, offset, partition, process)
        self.end(end, process)

    def end(self, end: str, process: Process) -> None:
        if end:
            name, outcome = end.split()
            getattr(getattr(process, name)(), outcome)()

    def judge(self, allow: Collection[str] = ()) -> Report:
        return verify(self.lines, allow)

    def kinds(self) -> set[str]:
        return set(self.judge().findings.counts_of_anomalies())

    def allowed(self) -> set[str]:
        return set(self.judge().findings.counts_of_allowed())

    def only(self, kind: str) -> str:
        """The one anomaly there is, in its sentence."""
        anomalies = self.judge().anomalies
        assert [finding.kind for finding in anomalies] == [kind], anomalies
        return anomalies[0].sentence
