"""What a check has to say: the kinds of anomalies, what Kafka's model allows, and the evidence in a sentence.

A finding is an anomaly unless its kind stands in `ALLOWED` or the caller allows it. Of each kind all are counted and
the first ones are kept, so that a history in which everything is wrong is told in a bounded space.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

EVIDENCE_PER_KIND = 1000
_SHOWN_CHARACTERS = 40

# In the order in which a report tells them.
ANOMALIES = {
    "lost-write": "acknowledged (its transaction committed), but a reader went past it and nobody read it",
    "torn-transaction": "a part of a transaction was read, and another part of it is lost or unseen",
    "unseen": "acknowledged (its transaction committed), but nobody read it, though its partition was drained",
    "aborted-read": "a reader at read_committed was given a record that was aborted, refused or never committed",
    "undecided-read": "a reader at read_committed was given a record before its transaction was asked to commit",
    "unsent-read": "a record was read that nobody has sent, or not to that partition",
    "duplicate": "one value stands at more offsets than the sends of it can explain",
    "inconsistent-offset": "one offset of one partition has two values",
    "nonmonotonic-poll": "a consumer that kept its position was given an offset twice, or a lower one later",
    "skipped-poll": "a consumer that kept its position went past a record that others read",
    "nonmonotonic-send": "a later send was given a lower offset than an earlier one",
    "taken-again": "a record went to a member of a share group after another was told that it is done with",
    "untaken": "acknowledged, but no member of a share group was given it, though its queue was drained",
    "circular-flow": "committed transactions have read each other's writes in a circle (G1c)",
}
ALLOWED = {
    "rewound-poll": "a consumer reads again what it had read before it was assigned the partition anew, or sought",
    "uncommitted-read": "a reader at read_uncommitted was given a record that was aborted",
    "unknown-outcome": "a send or commit of unknown outcome: its records may be there or not",
    "resent": "one value was sent several times, and stands there several times",
    "retried-send": "a producer without idempotence stored a record more than once",
    "reordered-send": "a producer without idempotence stored sends that were under way together in another order",
    "redelivered": "a record went to several members of a share group, one after the other, before it was done with",
    "settled-twice": "members were told twice that a record is done with: what is said late counts for nothing",
    "write-cycle": "transactions depend on each other in a circle, by the order of writes or by uncommitted reads (G0)",
}
KINDS = {**ANOMALIES, **ALLOWED}


class Finding(NamedTuple):
    kind: str
    line: int  # The line of the history where it came to light.
    sentence: str


class Findings:
    def __init__(self, allow: Collection[str] = ()) -> None:
        if unknown := set(allow) - set(KINDS):
            raise ValueError(f"there is no kind {', '.join(sorted(unknown))}: the kinds are {', '.join(KINDS)}")
        self._allowed = {*ALLOWED, *allow}
        self._kept: dict[str, list[Finding]] = {kind: [] for kind in KINDS}
        self.counts: Counter[str] = Counter()

    def add(self, kind: str, line: int, sentence: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= EVIDENCE_PER_KIND:
            self._kept[kind].append(Finding(kind, line, sentence))

    def is_allowed(self, kind: str) -> bool:
        return kind in self._allowed

    def of(self, kind: str) -> list[Finding]:
        """The first ones of this kind, at most EVIDENCE_PER_KIND."""
        return sorted(self._kept[kind], key=lambda finding: finding.line)

    def anomalies(self) -> Iterator[Finding]:
        for kind in self.counts_of_anomalies():
            yield from self.of(kind)

    def counts_of_anomalies(self) -> dict[str, int]:
        return {kind: self.counts[kind] for kind in KINDS if self.counts[kind] and kind not in self._allowed}

    def counts_of_allowed(self) -> dict[str, int]:
        return {kind: self.counts[kind] for kind in KINDS if self.counts[kind] and kind in self._allowed}


def quoted(value: str | int) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
