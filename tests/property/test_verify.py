"""The history checker against a model of Kafka: what the model does is never accused, what is then falsified is found.

The model keeps partitions with transactions, markers and a last stable offset; its clients lose answers, time out, send
again what was aborted, rebalance and seek. A defect is planted in the recorded lines afterwards.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tailrace.verify import verify
from tests.property.kafka_model import Kafka, record_history

SEEDS = {"seed": st.integers(0, 1 << 32), "steps": st.integers(1, 150)}


@settings(max_examples=150, deadline=None)
@given(**SEEDS)
def test_a_correct_history_is_never_accused(seed, steps):
    report = verify(record_history(Random(seed), steps)[0])
    assert report.is_clean, report.anomalies
    assert report.figures.drained


def test_the_histories_cover_what_is_allowed():
    counts: dict[str, int] = {}
    for seed in range(60):
        for kind, count in verify(record_history(Random(seed), 150)[0]).findings.counts_of_allowed().items():
            counts[kind] = counts.get(kind, 0) + count
    assert set(counts) >= {"rewound-poll", "uncommitted-read", "unknown-outcome", "resent", "write-cycle"}


class Defects:
    """Each falsifies a history in one place, or gives up (`assume`) where it has no such place."""

    def __init__(self, events: list[dict[str, Any]], kafka: Kafka, random: Random) -> None:
        self.events = events
        self.kafka = kafka
        self.random = random
        self.drain = next(index for index, event in enumerate(events) if event["op"] == "drain")
        self.last_poll = events[self.drain - 1]["records"]  # It reads everything, at read_committed.

    def choose(self, choices: list[Any]) -> Any:
        assume(choices)
        return self.random.choice(choices)

    def polls(self) -> list[list[Any]]:
        return [event["records"] for event in self.events if event["op"] == "poll"]

    def acknowledged(self) -> list[list[Any]]:
        """Records with the offsets that their producers were told."""
        return [
            record
            for event in self.events
            if event["op"] == "send" and event["type"] == "ok" and "records" in event
            for record in event["records"]
            if record[1] is not None
        ]

    def lose(self) -> None:
        told = [record for record in self.acknowledged() if self.kafka.is_certain(*record[:2])]
        record = self.choose(told)
        for records in self.polls():
            records[:] = [each for each in records if each != record]

    def double(self) -> None:
        name, _offset, value = self.choose([each for each in self.last_poll if self.kafka.times_sent[each[2]] == 1])
        self.last_poll.append([name, self.kafka.end(name), value])

    def disagree(self) -> None:
        record = self.choose([record for record in self.acknowledged() if record in self.last_poll])
        self.last_poll[self.last_poll.index(record)] = [*record[:2], "another value"]

    def show_aborted(self) -> None:
        name, offset, value = self.choose(self.kafka.aborted())
        self.last_poll.append([name, offset, value])
        self.last_poll.sort(key=lambda record: record[1])

    def show_early(self) -> None:
        """As if the commit of some transaction had come after all reads."""
        commit = self.choose(
            [
                index
                for index, event in enumerate(self.events[:-1])
                if event["op"] == "commit"
                and event["type"] == "invoke"
                and self.kafka.is_read_after(event, self.events)
            ]
        )
        process = self.events[commit]["process"]
        later = [event for event in self.events[commit:] if event["process"] == process]
        self.events[commit:] = [event for event in self.events[commit:] if event["process"] != process] + later

    def show_unsent(self) -> None:
        name = self.choose([name for name in self.kafka.logs if self.kafka.end(name)])
        self.last_poll.append([name, self.kafka.end(name), "from nowhere"])

    def go_back(self) -> None:
        records = self.choose([records for records in self.polls() if records])
        records.append(self.random.choice(records))

    def skip(self) -> None:
        others = [
            record
            for event in self.events[: self.drain - 1]
            if event["op"] == "poll" and event["isolation"] == "read_committed"
            for record in event["records"]
        ]
        spans = [
            record
            for before, record, after in zip(self.last_poll, self.last_poll[1:], self.last_poll[2:], strict=False)
            if before[0] == record[0] == after[0] and record in others
        ]
        self.last_poll.remove(self.choose(spans))

    def send_back(self) -> None:
        answered: dict[str, list[Any]] = {}  # The last record of each partition whose offset was told.
        before: dict[int, dict[str, list[Any]]] = {}  # The same, as it was when a send was invoked.
        pairs = []
        for event in self.events:
            if event["op"] == "send" and event["type"] == "invoke":
                before[event["id"]] = dict(answered)
            elif event["op"] == "send" and event["type"] == "ok":
                record = event["records"][0]
                if record[1] is not None:
                    answered[record[0]] = record
                    pairs += [(one, record) for name, one in before[event["id"]].items() if name == record[0]]
        one, other = self.choose(pairs)
        one[1], other[1] = other[1], one[1]

    def go_in_circles(self) -> None:
        """An earlier transaction reads what a later one wrote that had read of it."""
        at, poll = self.choose(self.kafka.circles(self.events))
        self.events.insert(at, poll)


DEFECTS = {
    "lose": {"lost-write", "torn-transaction", "unseen"},
    "double": {"duplicate"},
    "disagree": {"inconsistent-offset"},
    "show_aborted": {"aborted-read"},
    "show_early": {"undecided-read"},
    "show_unsent": {"unsent-read"},
    "go_back": {"nonmonotonic-poll"},
    "skip": {"skipped-poll"},
    "send_back": {"nonmonotonic-send"},
    "go_in_circles": {"circular-flow"},
}


@pytest.mark.parametrize("defect", DEFECTS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 32))
def test_each_planted_defect_is_found(defect, seed):
    random = Random(seed)
    lines, kafka = record_history(random, 200)
    defects = Defects([json.loads(line) for line in lines], kafka, random)
    getattr(defects, defect)()
    report = verify([json.dumps(event) + "\n" for event in defects.events])
    assert DEFECTS[defect] & set(report.findings.counts_of_anomalies()), (defect, report.anomalies)
