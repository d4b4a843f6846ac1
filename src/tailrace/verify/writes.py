"""Who wrote what was read: every read finds its send, every unknown transaction its outcome where a reader shows it.

A read belongs to the send that was told this very offset; else to any send of its value that may stand there: one of
unknown outcome, or acknowledged without an offset, to this partition or to one that was never told.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.verify.facts import Attempt, Outcome, Partition, Read
from tailrace.verify.findings import Findings, quoted
from tailrace.verify.history import History

_PLACES_TOLD = 5


class Place(NamedTuple):
    partition: Partition
    offset: int
    read: Read


def check_writes(history: History, findings: Findings) -> None:
    """Aborted, undecided and unsent reads, duplicates, and offsets with two values as producers were told them."""
    strays = _match(history)
    _check_reads(history, findings)
    _check_acknowledged_offsets(history, findings)
    _check_duplicates(history, findings, strays)


def writers(history: History, partition: Partition, offset: int, value: str | int) -> list[Attempt]:
    """The attempts that may have written it: one for certain, several if none was told this offset."""
    first = history.by_value.get(value)
    if first is not None and first.offset == offset and first.partition is partition:
        return [first]
    attempts = history.attempts_of(value)
    for attempt in attempts:
        if attempt.offset == offset and attempt.partition is partition:
            return [attempt]
    return [
        attempt
        for attempt in attempts
        if attempt.offset < 0
        and attempt.outcome is not Outcome.FAIL
        and (attempt.partition is None or attempt.partition is partition)
    ]


def _match(history: History) -> dict[str | int, list[Place]]:
    """Marks what was seen, decides what a reader shows to be committed, and gives the reads at offsets that no producer
    was told, by value."""
    strays: dict[str | int, list[Place]] = {}
    for partition in history.partitions.values():
        for offset, read in partition.reads.items():
            found = writers(history, partition, offset, read.value)
            for attempt in found:
                attempt.is_seen = True
            if len(found) != 1 or found[0].offset != offset:
                strays.setdefault(read.value, []).append(Place(partition, offset, read))
            transaction = found[0].transaction if len(found) == 1 else None
            if transaction is not None and transaction.seen is None and read.committed_line:
                transaction.seen = read
                if transaction.outcome is Outcome.INFO:
                    transaction.outcome = Outcome.OK
                    transaction.outcome_line = read.committed_line
    return strays


def _check_reads(history: History, findings: Findings) -> None:
    sent_to = {attempt.partition for attempt in history.attempts}
    for partition in history.partitions.values():
        is_sent_to = partition in sent_to or None in sent_to
        for offset, read in partition.reads.items():
            found = writers(history, partition, offset, read.value)
            if not found:
                if is_sent_to:
                    _check_origin(history, findings, Place(partition, offset, read))
            elif not any(_has_nothing_to_hide(attempt, read) for attempt in found):
                _check_outcome(findings, Place(partition, offset, read), found)


def _has_nothing_to_hide(attempt: Attempt, read: Read) -> bool:
    transaction = attempt.transaction
    if transaction is None:
        return True
    return transaction.outcome is Outcome.OK and (
        not read.committed_line or transaction.commit_line < read.committed_line
    )


def _check_origin(history: History, findings: Findings, place: Place) -> None:
    """Nobody's send fits: was it ever sent?"""
    partition, offset, read = place
    attempts = history.attempts_of(read.value)
    told = (
        f"process {read.process} read {quoted(read.value)} at offset {offset} of {partition.name} (line {read.line}), "
    )
    if not attempts:
        findings.add("unsent-read", read.line, told + "but nobody has sent it")
    elif all(attempt.outcome is Outcome.FAIL for attempt in attempts):
        refused = attempts[0]
        told += f"but the send of process {refused.process} was refused (line {refused.end_line})"
        findings.add("aborted-read", read.line, told)
    elif all(attempt.partition not in (partition, None) for attempt in attempts):
        other = attempts[0].partition
        assert other is not None
        findings.add("unsent-read", read.line, told + f"but it was sent to {other.name} (line {attempts[0].line})")
    # Else its sends stand at other offsets, and it is a duplicate.


def _check_outcome(findings: Findings, place: Place, found: list[Attempt]) -> None:
    """All that may have written it were transactions; of several, the best is believed."""
    partition, offset, read = place
    outcomes = {attempt.transaction.outcome for attempt in found if attempt.transaction is not None}
    if outcomes == {Outcome.FAIL}:
        transaction = found[0].transaction
        assert transaction is not None
        end = f"was aborted (line {transaction.aborted_line})" if transaction.aborted_line else "was never committed"
        told = f"of the transaction that process {transaction.process} began in line {transaction.line} and that {end}"
        at = f"{quoted(read.value)} at offset {offset} of {partition.name}"
        if read.committed_line:
            line = read.committed_line
            told = f"process {read.committed_process} at read_committed read {at} (line {line}), {told}"
            findings.add("aborted-read", line, told)
        else:
            told = f"process {read.process} at read_uncommitted read {at} (line {read.line}), {told}"
            findings.add("uncommitted-read", read.line, told)
        return
    asked = min(
        attempt.transaction.commit_line for attempt in found if attempt.transaction and attempt.transaction.commit_line
    )
    if read.committed_line and read.committed_line < asked:
        findings.add(
            "undecided-read",
            read.committed_line,
            f"process {read.committed_process} at read_committed read {quoted(read.value)} at offset {offset} of "
            f"{partition.name} (line {read.committed_line}), before process {found[0].process} asked to commit its "
            f"transaction (line {asked})",
        )


def _check_acknowledged_offsets(history: History, findings: Findings) -> None:
    for partition in history.partitions.values():
        first: dict[int, Attempt] = {}
        for attempt in partition.acknowledged:
            offset = attempt.offset
            told = (
                f"offset {offset} of {partition.name} was told to process {attempt.process} for "
                f"{quoted(attempt.value)} (line {attempt.end_line})"
            )
            other = first.setdefault(offset, attempt)
            if other.value != attempt.value:
                told += f" and to process {other.process} for {quoted(other.value)} (line {other.end_line})"
                findings.add("inconsistent-offset", attempt.end_line, told)
            read = partition.reads.get(offset)
            if read is not None and read.value != attempt.value:
                told += f", and process {read.process} read {quoted(read.value)} there (line {read.line})"
                findings.add("inconsistent-offset", max(attempt.end_line, read.line), told)


def _check_duplicates(history: History, findings: Findings, strays: dict[str | int, list[Place]]) -> None:
    for value in {**strays, **history.resent}:
        attempts = [attempt for attempt in history.attempts_of(value) if attempt.outcome is not Outcome.FAIL]
        if not attempts:
            continue
        told: dict[tuple[str, int], tuple[int, str]] = {}
        for attempt in attempts:
            if attempt.offset >= 0 and attempt.partition is not None:
                place = f"acknowledged to process {attempt.process}, line {attempt.end_line}"
                told[attempt.partition.name, attempt.offset] = (attempt.end_line, place)
        committed = {
            (attempt.partition.name, attempt.offset)
            for attempt in attempts
            if attempt.partition is not None and attempt.offset >= 0 and attempt.committed_line
        }
        for partition, offset, read in strays.get(value, ()):
            told[partition.name, offset] = (read.line, f"read by process {read.process}, line {read.line}")
            if read.committed_line:
                committed.add((partition.name, offset))
        kind = _kind_of_duplicate(attempts, len(told), len(committed))
        if kind:
            where = " and ".join(f"offset {at[1]} of {at[0]} ({told[at][1]})" for at in sorted(told)[:_PLACES_TOLD])
            where += f" and {len(told) - _PLACES_TOLD} more" if len(told) > _PLACES_TOLD else ""
            times = "once" if len(attempts) == 1 else f"{len(attempts)} times"
            findings.add(
                kind, max(line for line, _ in told.values()), f"{quoted(value)}, sent {times}, stands at {where}"
            )


def _kind_of_duplicate(attempts: list[Attempt], places: int, committed_places: int) -> str | None:
    if places > len(attempts):
        return "duplicate" if all(attempt.is_idempotent for attempt in attempts) else "retried-send"
    if committed_places < 2:
        return None
    # A transaction that carries the offsets of its input is repeated only if it was aborted: both must not count. Who
    # sends a value again without them, after a timeout say, takes into account that it stands there twice.
    once = [attempt for attempt in attempts if attempt.transaction is not None and attempt.transaction.with_offsets]
    return "duplicate" if len(once) > 1 else "resent"
