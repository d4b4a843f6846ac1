"""`verify`: the judgement of a whole history, with the figures that tell how much it covers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tailrace.verify.cycles import check_cycles
from tailrace.verify.events import read_events
from tailrace.verify.facts import Outcome
from tailrace.verify.findings import Finding, Findings
from tailrace.verify.history import History
from tailrace.verify.order import check_order
from tailrace.verify.writes import check_writes


class Figures(NamedTuple):
    """How much a history covers: one without polls proves nothing."""

    events: int
    processes: int
    partitions: int
    sent: int
    acknowledged: int
    unknown: int  # Sends of unknown outcome.
    read: int  # Different records.
    transactions: int
    committed: int
    aborted: int
    drained: bool
    deliveries: int  # To members of share groups.


class Report(NamedTuple):
    figures: Figures
    findings: Findings

    @property
    def is_clean(self) -> bool:
        return not self.findings.counts_of_anomalies()

    @property
    def anomalies(self) -> list[Finding]:
        return list(self.findings.anomalies())


def verify(lines: Iterable[str], allow: Collection[str] = ()) -> Report:
    """HistoryError if the lines are not a history; ValueError if `allow` names a kind that does not exist."""
    findings = Findings(allow)
    history = History(findings)
    history.add_all(read_events(lines))
    history.finish()
    check_writes(history, findings)
    check_order(history, findings)
    check_cycles(history, findings)
    history.queues.check(history.attempts)
    return Report(_figures(history), findings)


def _figures(history: History) -> Figures:
    outcomes = [attempt.outcome for attempt in history.attempts]
    ends = [transaction.outcome for transaction in history.transactions]
    return Figures(
        events=history.events,
        processes=len(history.processes),
        partitions=len(history.partitions),
        sent=len(outcomes),
        acknowledged=outcomes.count(Outcome.OK),
        unknown=outcomes.count(Outcome.INFO),
        read=sum(len(partition.reads) for partition in history.partitions.values()),
        transactions=len(ends),
        committed=ends.count(Outcome.OK),
        aborted=ends.count(Outcome.FAIL),
        drained=bool(history.drains or history.queues.drains),
        deliveries=history.queues.deliveries,
    )
