"""Order and completeness: offsets that producers were told, records that readers went past, records that nobody read.

Every check is n log n in the records of a partition: what a consumer must have met between two offsets is counted by
bisection, not by walking through it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from tailrace.verify.facts import Attempt, Outcome, Partition, Span
from tailrace.verify.findings import Findings, quoted
from tailrace.verify.history import History


def check_order(history: History, findings: Findings) -> None:
    """After `check_writes`, which tells what was seen."""
    _check_sends_of_processes(history, findings)
    for partition in history.partitions.values():
        _check_sends_in_time(partition, findings)
        _check_skips(partition, findings)
    _check_losses(history, findings)
    _count_unknown(history, findings)


def _check_sends_of_processes(history: History, findings: Findings) -> None:
    """A producer's records stand in the order in which it sent them, even if several were under way."""
    highest: dict[tuple[str, Partition], Attempt] = {}
    for attempt in history.attempts:
        if attempt.offset < 0 or attempt.partition is None:
            continue
        key = (attempt.process, attempt.partition)
        before = highest.get(key)
        if before is None or before.offset <= attempt.offset:  # Equal ones are an inconsistent offset.
            highest[key] = attempt
        elif before.end_line > attempt.line:  # They were under way together; `_check_sends_in_time` has the others.
            kind = "nonmonotonic-send" if attempt.is_idempotent else "reordered-send"
            findings.add(kind, attempt.end_line, _order_text(before, attempt))


def _check_sends_in_time(partition: Partition, findings: Findings) -> None:
    """What was sent after another send was acknowledged, by whomever, stands behind it."""
    ends = [attempt.end_line for attempt in partition.acknowledged]
    highest = list(accumulate(partition.acknowledged, _higher))
    for attempt in partition.acknowledged:
        index = bisect_left(ends, attempt.line)
        if index and highest[index - 1].offset > attempt.offset:
            findings.add("nonmonotonic-send", attempt.end_line, _order_text(highest[index - 1], attempt))


def _higher(one: Attempt, other: Attempt) -> Attempt:
    return other if other.offset > one.offset else one


def _order_text(before: Attempt, attempt: Attempt) -> str:
    assert attempt.partition is not None
    return (
        f"process {before.process} sent {quoted(before.value)} (line {before.line}) before process {attempt.process} "
        f"sent {quoted(attempt.value)} (line {attempt.line}), but they stand in {attempt.partition.name} at offsets "
        f"{before.offset} and {attempt.offset}"
    )


def _check_skips(partition: Partition, findings: Findings) -> None:
    every = sorted(partition.reads)
    committed = [offset for offset in every if partition.reads[offset].committed_line]
    for span in partition.spans:
        visible = committed if span.is_committed else every
        start = bisect_left(visible, span.offsets[0])
        missing = bisect_right(visible, span.offsets[-1]) - start - len(span.offsets)
        if not missing:
            continue
        # From the first that is missing on, all offsets of the span stand later in `visible`: bisection finds it.
        first = bisect_left(range(len(span.offsets)), True, key=lambda i: span.offsets[i] != visible[start + i])
        offset = visible[start + first]
        read = partition.reads[offset]
        reader = (read.committed_process, read.committed_line) if span.is_committed else (read.process, read.line)
        more = f" and {missing - 1} more" if missing > 1 else ""
        findings.add(
            "skipped-poll",
            span.line,
            f"{_span_text(partition, span)} but not {quoted(read.value)} at offset {offset}, which process {reader[0]} "
            f"read (line {reader[1]}){more}",
        )


def _span_text(partition: Partition, span: Span) -> str:
    start, last = span.offsets[0], span.offsets[-1]
    return f"process {span.process} read {partition.name} from offset {start} to {last} (line {span.line})"


def _check_losses(history: History, findings: Findings) -> None:
    passed = {partition: _Passed(partition) for partition in history.partitions.values()}
    drained: dict[str | None, int] = {}  # By partition (None: all), the last line that says so.
    for line, names in history.drains:
        for name in names if names is not None else (None,):
            drained[name] = line
    for attempt in history.attempts:
        committed_line = attempt.committed_line
        if attempt.is_seen or not committed_line:
            continue
        partition = attempt.partition
        if partition is not None and attempt.offset >= 0:
            span = passed[partition].by(attempt.offset)
            if span is not None:
                past = f"{_span_text(partition, span)} but not this, nor did anyone else"
                _add_loss(findings, "lost-write", span.line, attempt, past)
                continue
        drain = max(drained.get(None, 0), drained.get(partition.name, 0) if partition is not None else 0)
        if drain > committed_line:
            _add_loss(findings, "unseen", drain, attempt, f"nobody read it until all was drained (line {drain})")


class _Passed:
    """Whether a consumer went past an offset: of the spans that begin before it, the one that reaches furthest."""

    def __init__(self, partition: Partition) -> None:
        spans = sorted(partition.spans, key=lambda span: span.offsets[0])
        self._starts = [span.offsets[0] for span in spans]
        self._furthest = list(accumulate(spans, _further))

    def by(self, offset: int) -> Span | None:
        index = bisect_left(self._starts, offset)
        span = self._furthest[index - 1] if index else None
        return span if span is not None and span.offsets[-1] > offset else None


def _further(one: Span, other: Span) -> Span:
    return other if other.offsets[-1] > one.offsets[-1] else one


def _add_loss(findings: Findings, kind: str, line: int, attempt: Attempt, past: str) -> None:
    at = f" at offset {attempt.offset}" if attempt.offset >= 0 else ""
    where = f" of {attempt.partition.name}" if attempt.partition is not None else ""
    told = f"{quoted(attempt.value)}{at}{where} was acknowledged to process {attempt.process} (line {attempt.end_line})"
    transaction = attempt.transaction
    if transaction is not None and transaction.seen is not None:
        kind = "torn-transaction"
        seen = transaction.seen
        told += (
            f" in a transaction of which process {seen.committed_process} read {quoted(seen.value)} "
            f"(line {seen.committed_line})"
        )
    elif transaction is not None:
        told += f" and committed (line {transaction.outcome_line})"
    findings.add(kind, line, f"{told}; {past}")


def _count_unknown(history: History, findings: Findings) -> None:
    for attempt in history.attempts:
        if attempt.outcome is Outcome.INFO:
            told = (
                f"the send of {quoted(attempt.value)} by process {attempt.process} (line {attempt.line}) has no answer"
            )
            findings.add("unknown-outcome", attempt.line, told)
    for transaction in history.transactions:
        if transaction.outcome is Outcome.INFO:
            told = (
                f"the transaction that process {transaction.process} began in line {transaction.line} was asked to "
                f"commit (line {transaction.commit_line}), has no answer, and nobody read of it at read_committed"
            )
            findings.add("unknown-outcome", transaction.commit_line, told)
