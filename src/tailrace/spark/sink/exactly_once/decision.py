"""What is decided about a write, and how: pure, and the same whoever asks.

A *write* is one micro-batch of a stream, or one batch job; it has a scope (the query, or the name of the job) and a
number. Each task writes its *part* of it in a transaction that it leaves open. The driver's decision names the parts,
and from then on they are to be committed, by whoever finds it:

    nothing --all parts are open and in time--> DECIDED --each part is committed--> FINISHED --the next write--> ...
                                                   |
                                                   +--a part was aborted after all (its time was over)--> DECIDED anew,
                                                      with that part written again; see `decide_ending`

The latest decision of a scope is all that anybody needs to know of it: earlier writes were finished before it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.client.lanes import ANONYMOUS, ProducerIdentity

_FORMAT = 1


class ExactlyOnceError(Exception):
    """The write cannot go on without the risk of a loss or a duplicate, so that it does not."""


class Fingerprint(NamedTuple):
    """A digest of the rows of a part, in any order: if two runs agree on it, this task had the same rows in both."""

    rows: int = 0
    checksum: int = 0


@dataclass(frozen=True)
class Part:
    index: int  # the task's
    identity: ProducerIdentity  # ANONYMOUS if there were no rows, and so no transaction
    fingerprint: Fingerprint

    @property
    def has_transaction(self) -> bool:
        return self.identity != ANONYMOUS


class Report(NamedTuple):
    """What a task has done. One that has not written found its part committed, or the whole write finished."""

    part: Part
    has_written: bool


class Decision(NamedTuple):
    batch: int
    run: str  # a run of the query: a restart has another
    decided_ms: int
    parts: tuple[Part, ...]
    is_finished: bool = False

    def part_of(self, index: int) -> Part | None:
        return next((part for part in self.parts if part.index == index and part.has_transaction), None)

    def check_order(self, batch: int) -> None:
        """Raises ExactlyOnceError if this is about a later batch than the one to be written, or about an earlier one
        that is not complete: to go on would be to abort what was decided on, and to forget that it was."""
        if self.batch > batch:
            raise ExactlyOnceError(
                f"batch {batch} comes too late: batch {self.batch} of the same query was decided by run {self.run}. "
                "Either that run still goes on, and this one has to stop; or the checkpoint was set back, and then it "
                "takes a new checkpoint (in a batch write a new exactlyOnceId), which makes it a query of its own"
            )
        if self.batch < batch and not self.is_finished:
            raise ExactlyOnceError(
                f"batch {batch} comes too early: batch {self.batch} of the same query was decided by run {self.run}, "
                f"and is not known to be complete. Write batch {self.batch} again first, which completes it"
            )

    def to_bytes(self) -> bytes:
        parts = [[part.index, *part.identity, *part.fingerprint] for part in self.parts]
        fields = {"format": _FORMAT, **self._asdict(), "parts": parts}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Decision:
        """Raises ExactlyOnceError if this is none of ours, or of a later release."""
        try:
            fields = json.loads(value)
            if fields["format"] != _FORMAT:
                raise ExactlyOnceError(
                    f"a decision has format {fields['format']}, and this release knows {_FORMAT}: a newer release has "
                    "made it, and has to go on with it"
                )
            parts = tuple(
                Part(index, ProducerIdentity(producer_id, epoch), Fingerprint(rows, checksum))
                for index, producer_id, epoch, rows, checksum in fields["parts"]
            )
            return cls(
                int(fields["batch"]), str(fields["run"]), int(fields["decided_ms"]), parts, bool(fields["is_finished"])
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ExactlyOnceError(
                f"the decision topic holds a record that is no decision ({error!r}): let nothing else write to it"
            ) from None


class Ending(NamedTuple):
    """What the driver does about a write."""

    # All parts of the write, to be committed once they are recorded. Empty if there is nothing to commit, or if what
    # was decided before is committed already.
    parts: tuple[Part, ...] = ()
    # Those of them that this run has written: they have to be open until they are recorded.
    written: tuple[Part, ...] = ()
    # Written in vain: another transaction with the same rows is committed.
    needless: tuple[Part, ...] = ()


def decide_ending(
    earlier: Decision | None, reports: Sequence[Report], *, batch: int, lost: Collection[int] = ()
) -> Ending:
    """`lost` are the parts of an earlier decision about this very write that were aborted after all. Raises
    ExactlyOnceError if the rest of its parts, which are committed, are not what this run would have written; or if it
    is not the turn of this write."""
    if earlier is not None:
        earlier.check_order(batch)
    if earlier is None or earlier.batch < batch:
        _check_written(reports)
        parts = tuple(report.part for report in reports)
        return Ending(parts, parts) if any(part.has_transaction for part in parts) else Ending()
    written = tuple(report.part for report in reports if report.has_written and report.part.has_transaction)
    if earlier.is_finished or not lost:
        return Ending(needless=written)
    committed = {part.index: part for part in earlier.parts if part.has_transaction and part.index not in lost}
    if committed:
        _check_same_rows(earlier, reports)
    _check_written([report for report in reports if report.part.index not in committed])
    parts = tuple(committed.get(report.part.index, report.part) for report in reports)
    used = tuple(part for part in written if part.index not in committed)
    return Ending(parts, used, tuple(part for part in written if part.index in committed))


def _check_written(reports: Sequence[Report]) -> None:
    for report in reports:
        if not report.has_written:
            raise ExactlyOnceError(
                f"task {report.part.index} found its part committed, and the decision to do so is gone: was the "
                "decision topic deleted? What was committed of this batch is in the topics; a new checkpoint that "
                "starts after it goes on"
            )


def _check_same_rows(earlier: Decision, reports: Sequence[Report]) -> None:
    before = {part.index: part.fingerprint for part in earlier.parts}
    now = {report.part.index: report.part.fingerprint for report in reports}
    differing = sorted(index for index in before.keys() | now.keys() if before.get(index) != now.get(index))
    if not differing:
        return
    index = differing[0]
    was, is_now = (f"{found[index].rows} rows" if index in found else "no task" for found in (before, now))
    raise ExactlyOnceError(
        f"batch {earlier.batch} is half written, and cannot be completed: its transactions were decided on at "
        f"{earlier.decided_ms} ms since 1970, some were committed, and the others were aborted since nobody had ended "
        f"them when their time was over. They would be written again, but the plan gave other rows this time: task "
        f"{index} had {was} then and has {is_now} now, or other ones ({len(differing)} tasks differ). Make the plan "
        "repeatable (no random values or current time before a repartition, the same number of tasks), or take what is "
        "there as it is and start a new checkpoint after this batch; a larger kafka.transaction.timeout.ms leaves more "
        "time for a restart"
    )
