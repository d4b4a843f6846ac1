"""Circular flow of information, and the circles that Kafka's model allows."""

import pytest

from tests.unit.verify.scribe import P, Q, Scribe


@pytest.fixture
def scribe():
    return Scribe()


def _loop(scribe, name, isolation="read_committed"):
    process = scribe.recorder.process(name, isolation=isolation)
    process.begin()
    return process


def test_two_transactions_that_read_each_other(scribe):
    one, two = _loop(scribe, "one"), _loop(scribe, "two")
    scribe.sent("x", 0, P, by=one)
    scribe.sent("y", 0, Q, by=two)
    one.polled([(Q, 0, "y")])
    two.polled([(P, 0, "x")])
    scribe.end("commit ok", one)
    scribe.end("commit ok", two)
    report = scribe.judge(allow=["undecided-read"])
    assert [finding.kind for finding in report.anomalies] == ["circular-flow"]
    assert "process one (begun in line 1), process two (begun in line 2)" in report.anomalies[0].sentence


def test_over_a_third_one_and_with_what_was_polled_between_transactions(scribe):
    names = ["one", "two", "three"]
    processes = {name: _loop(scribe, name) for name in names}
    for name in names:
        scribe.end("abort ok", processes[name])
    # Each has polled, before it begins, what the one before it will write.
    for name, before in zip(names, [names[-1], *names], strict=False):
        processes[name].polled([(f"{before}-0", 0, before)])
    for name in names:
        scribe.write("commit ok", (f"{name}-0", 0, name), by=processes[name])
    assert scribe.kinds() == {"circular-flow", "undecided-read"}
    assert scribe.judge().findings.counts["circular-flow"] == 1


def test_a_chain_is_no_circle(scribe):
    one, two = _loop(scribe, "one"), _loop(scribe, "two")
    scribe.sent("x", 0, P, by=one)
    scribe.end("commit ok", one)
    two.polled([(P, 0, "x")])
    scribe.sent("y", 0, Q, by=two)
    scribe.end("commit ok", two)
    one.polled([(Q, 0, "y")])
    scribe.write("commit ok", (P, 2, "z"), by=one)
    assert not scribe.judge().findings.counts


def test_what_is_polled_while_a_commit_has_no_answer_flows_into_the_next_transaction(scribe):
    one, two = _loop(scribe, "one"), _loop(scribe, "two")
    scribe.sent("x", 0, P, by=one)
    scribe.end("commit info", one)
    two.polled([(P, 0, "x")])
    scribe.sent("y", 0, Q, by=two)
    scribe.end("commit ok", two)
    one.polled([(Q, 0, "y")])
    assert scribe.judge().is_clean


def test_a_transaction_may_read_its_own_writes_of_before(scribe):
    one = _loop(scribe, "one")
    scribe.sent("x", 0, P, by=one)
    scribe.end("commit ok", one)
    one.begin()
    one.polled([(P, 0, "x")])
    scribe.end("commit ok", one)
    assert not scribe.judge().findings.counts


def test_uncommitted_reads_may_go_in_circles(scribe):
    one, two = _loop(scribe, "one", "read_uncommitted"), _loop(scribe, "two", "read_uncommitted")
    scribe.sent("x", 0, P, by=one)
    scribe.sent("y", 0, Q, by=two)
    one.polled([(Q, 0, "y")])
    two.polled([(P, 0, "x")])
    scribe.end("commit ok", one)
    scribe.end("commit ok", two)
    assert scribe.judge().is_clean
    assert scribe.allowed() == {"write-cycle"}


def test_writes_may_interleave(scribe):
    one, two = _loop(scribe, "one"), _loop(scribe, "two")
    scribe.sent("a", 0, P, by=one)
    scribe.sent("b", 1, P, by=two)
    scribe.sent("c", 0, Q, by=two)
    scribe.sent("d", 1, Q, by=one)
    scribe.end("commit ok", one)
    scribe.end("commit ok", two)
    report = scribe.judge()
    assert report.is_clean
    (finding,) = report.findings.of("write-cycle")
    assert finding.sentence.endswith(
        "process two (begun in line 2) depend on each other's reads and writes in a circle"
    )


def test_a_long_circle_is_found_without_recursion(scribe):
    count = 3000
    processes = [_loop(scribe, str(number)) for number in range(count)]
    for number, process in enumerate(processes):
        scribe.sent(f"v{number}", 0, f"t-{number}", by=process)
        process.polled([(f"t-{(number + 1) % count}", 0, f"v{(number + 1) % count}")])
    for process in processes:
        scribe.end("commit ok", process)
    report = scribe.judge(allow=["undecided-read"])
    assert [finding.kind for finding in report.anomalies] == ["circular-flow"]
    assert f"and {count - 5} more" in report.anomalies[0].sentence
