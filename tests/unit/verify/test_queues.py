"""Share groups in histories: what was delivered, what members were told, and near misses."""

import pytest

from tailrace.verify import HistoryError
from tests.unit.verify.scribe import P, Q, Scribe

G = "workers"


@pytest.fixture
def scribe():
    scribe = Scribe()
    scribe.sent("a", 0)
    scribe.sent("b", 1)
    return scribe


def test_a_queue_whose_records_are_all_done_with_is_clean(scribe):
    scribe.reader.taken(G, [(P, 0, "a", 1), (P, 1, "b", 1)])
    scribe.reader.settle(G, [(P, 0, "accept"), (P, 1, "release")]).ok()
    scribe.other.taken(G, [(P, 1, "b", 2)])
    scribe.other.settle(G, [(P, 1, "reject")]).ok()
    scribe.reader.emptied(G)
    report = scribe.judge()
    assert report.is_clean
    assert report.findings.counts_of_allowed() == {"redelivered": 1}
    assert (report.figures.deliveries, report.figures.drained) == (3, True)


def test_a_record_that_is_done_with_is_not_delivered_again(scribe):
    scribe.reader.taken(G, [(P, 0, "a", 1)])
    scribe.reader.settle(G, [(P, 0, "accept")]).ok()
    scribe.other.taken(G, [(P, 0, "a", 1)])
    assert scribe.only("taken-again") == (
        '"a" at offset 0 of orders-0 went to process o of group workers (line 8), after process c was told that its '
        "accept counts (line 7)"
    )


def test_what_was_refused_or_has_no_answer_may_come_again(scribe):
    scribe.reader.taken(G, [(P, 0, "a", 1), (P, 1, "b", 1)])
    scribe.reader.settle(G, [(P, 0, "accept")]).ok(refused=[(P, 0)])
    scribe.reader.settle(G, [(P, 1, "accept")]).info()
    scribe.other.taken(G, [(P, 0, "a", 2), (P, 1, "b", 2)])
    assert scribe.judge().is_clean


def test_a_delivery_that_was_on_its_way_says_nothing(scribe):
    scribe.reader.taken(G, [(P, 0, "a", 2)])
    scribe.reader.settle(G, [(P, 0, "accept")]).ok()
    scribe.other.taken(G, [(P, 0, "a", 1)])
    assert scribe.judge().is_clean


def test_another_group_has_its_own_queue(scribe):
    scribe.reader.taken(G, [(P, 0, "a", 1)])
    scribe.reader.settle(G, [(P, 0, "accept")]).ok()
    scribe.other.taken("others", [(P, 0, "a", 1)])
    assert scribe.judge().is_clean


def test_what_nobody_was_given_is_missed_when_the_queue_is_empty(scribe):
    scribe.sent("elsewhere", 0, Q)
    scribe.producer.send(P, "unknown")
    scribe.reader.taken(G, [(P, 0, "a", 1)])
    scribe.reader.emptied(G, [P])
    assert scribe.only("untaken").startswith(
        'process p sent "b" (line 3, acknowledged), and no member of group workers'
    )


def test_words_that_come_late_count_for_nothing(scribe):
    scribe.reader.taken(G, [(P, 0, "a", 1)])
    scribe.reader.settle(G, [(P, 0, "accept")]).ok()
    scribe.other.settle(G, [(P, 0, "accept")]).ok()
    assert scribe.judge().is_clean
    assert scribe.allowed() == {"settled-twice"}


def test_what_nobody_has_sent_is_found_in_queues_too(scribe):
    scribe.reader.taken(G, [(P, 2, "made up", 1)])
    scribe.other.taken(G, [(P, 0, "other", 1)])
    assert {"unsent-read", "inconsistent-offset"} & scribe.kinds()


def test_what_cannot_be_said_of_a_record(scribe):
    scribe.reader.settle(G, [(P, 0, "forget")])
    with pytest.raises(HistoryError, match="one of accept, reject, release"):
        scribe.judge()
