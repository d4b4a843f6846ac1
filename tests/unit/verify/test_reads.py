"""What readers were given, against what was written: each anomaly, and a near miss that is none."""

import pytest

from tests.unit.verify.scribe import P, Q, Scribe


@pytest.fixture
def scribe():
    return Scribe()


def test_a_plain_history_is_clean(scribe):
    scribe.sent("a", 0)
    scribe.sent("b", 1)
    scribe.reader.polled([(P, 0, "a"), (P, 1, "b")])
    scribe.reader.drained()
    report = scribe.judge()
    assert report.is_clean
    assert not report.findings.counts
    assert report.figures.sent == report.figures.acknowledged == report.figures.read == 2


def test_a_record_whose_offset_nobody_was_told_is_found_by_its_value(scribe):
    scribe.sent("a", None)
    scribe.producer.send(None, "b").ok(None, Q)
    scribe.reader.polled([(P, 0, "a"), (Q, 0, "b")])
    scribe.reader.drained()
    assert not scribe.judge().findings.counts


# ---- aborted read


def test_an_aborted_read(scribe):
    scribe.write("abort ok", (P, 0, "a"))
    scribe.reader.polled([(P, 0, "a")])
    assert scribe.only("aborted-read") == (
        'process c at read_committed read "a" at offset 0 of orders-0 (line 6), of the transaction that process p '
        "began in line 1 and that was aborted (line 5)"
    )


def test_an_aborted_record_may_be_read_uncommitted(scribe):
    scribe.write("abort ok", (P, 0, "a"))
    scribe.loose.polled([(P, 0, "a")])
    assert not scribe.kinds()
    assert scribe.allowed() == {"uncommitted-read"}


@pytest.mark.parametrize("end", ["", "commit fail"])
def test_a_transaction_that_no_commit_can_have_ended_is_aborted(scribe, end):
    scribe.write(end, (P, 0, "a"))
    scribe.reader.polled([(P, 0, "a")])
    assert "was never committed" in scribe.only("aborted-read")


def test_a_commit_of_unknown_outcome_may_have_had_its_effect(scribe):
    scribe.write("commit info", (P, 0, "a"))
    scribe.reader.polled([(P, 0, "a")])
    scribe.reader.drained()
    assert scribe.judge().is_clean
    assert scribe.judge().figures.committed == 1


def test_nor_need_it_have_had(scribe):
    scribe.write("commit info", (P, 0, "a"))
    scribe.sent("b", 2)
    scribe.reader.polled([(P, 2, "b")])
    scribe.reader.drained()
    assert scribe.judge().is_clean
    assert scribe.allowed() == {"unknown-outcome"}


def test_a_commit_without_an_answer_is_of_unknown_outcome(scribe):
    scribe.producer.begin()
    scribe.sent("a", 0)
    scribe.producer.commit()
    scribe.reader.polled([(P, 0, "a")])
    assert scribe.judge().is_clean


def test_also_when_its_process_comes_back(scribe):
    scribe.producer.begin()
    scribe.sent("a", 0)
    scribe.producer.commit()
    scribe.write("commit ok", (P, 2, "b"))
    scribe.reader.polled([(P, 0, "a"), (P, 2, "b")])
    assert scribe.judge().is_clean


def test_a_failed_commit_takes_nothing_back_that_an_earlier_one_may_have_done(scribe):
    scribe.write("commit info", (P, 0, "a"))
    scribe.end("commit fail", scribe.producer)
    scribe.reader.polled([(P, 0, "a")])
    assert scribe.judge().is_clean


def test_an_aborted_record_whose_offset_nobody_was_told(scribe):
    scribe.producer.begin()
    scribe.producer.send(P, "a").info()
    scribe.end("abort ok", scribe.producer)
    scribe.reader.polled([(P, 0, "a")])
    assert scribe.only("aborted-read")


def test_one_of_two_commits_of_unknown_outcome_has_had_its_effect(scribe):
    for _ in range(2):
        scribe.producer.begin()
        scribe.producer.send(P, "a").info()
        scribe.end("commit info", scribe.producer)
    scribe.reader.polled([(P, 0, "a")])
    assert scribe.judge().is_clean


def test_a_record_of_an_unknown_transaction_may_be_read_uncommitted(scribe):
    scribe.write("commit info", (P, 0, "a"))
    scribe.loose.polled([(P, 0, "a")])
    assert scribe.judge().is_clean


def test_a_refused_send_must_not_be_read(scribe):
    scribe.producer.send(P, "a").fail()
    scribe.reader.polled([(P, 0, "a")])
    assert "was refused (line 2)" in scribe.only("aborted-read")


def test_a_send_of_unknown_outcome_may_be_read(scribe):
    scribe.producer.send(P, "a").info()
    scribe.producer.send(None, "b")
    scribe.reader.polled([(P, 0, "a"), (P, 1, "b")])
    assert scribe.judge().is_clean


def test_an_aborted_attempt_is_told_from_the_one_that_was_committed(scribe):
    scribe.write("abort ok", (P, 0, "a"))
    scribe.write("commit ok", (P, 2, "a"))
    scribe.reader.polled([(P, 2, "a")])
    scribe.loose.polled([(P, 0, "a"), (P, 2, "a")])
    assert not scribe.kinds()
    scribe.reader.sought([P])
    scribe.reader.polled([(P, 0, "a")])
    assert "aborted-read" in scribe.kinds()


# ---- undecided read


def test_an_undecided_read(scribe):
    scribe.producer.begin()
    scribe.sent("a", 0)
    scribe.reader.polled([(P, 0, "a")])
    scribe.end("commit ok", scribe.producer)
    assert "before process p asked to commit its transaction (line 5)" in scribe.only("undecided-read")


def test_a_read_may_come_before_the_answer_to_the_commit(scribe):
    scribe.producer.begin()
    scribe.sent("a", 0)
    commit = scribe.producer.commit()
    scribe.reader.polled([(P, 0, "a")])
    commit.ok()
    assert scribe.judge().is_clean


def test_an_undecided_record_may_be_read_uncommitted(scribe):
    scribe.producer.begin()
    scribe.sent("a", 0)
    scribe.loose.polled([(P, 0, "a")])
    scribe.end("commit ok", scribe.producer)
    assert scribe.judge().is_clean


# ---- unsent read


def test_an_unsent_read(scribe):
    scribe.sent("a", 0)
    scribe.reader.polled([(P, 0, "a"), (P, 1, "b")])
    assert "but nobody has sent it" in scribe.only("unsent-read")


def test_a_record_in_another_partition_than_it_was_sent_to(scribe):
    scribe.producer.send(Q, "b").info()
    scribe.sent("a", 0)
    scribe.reader.polled([(P, 0, "a"), (P, 1, "b")])
    assert "but it was sent to orders-1 (line 1)" in scribe.only("unsent-read")


def test_partitions_to_which_nobody_sends_here_have_other_writers(scribe):
    scribe.sent("a", 0)
    scribe.reader.polled([(P, 0, "a"), (Q, 1, "b")])
    assert scribe.judge().is_clean


# ---- duplicate


def test_a_duplicate(scribe):
    scribe.sent("a", 0)
    scribe.loose.polled([(P, 0, "a"), (P, 1, "a")])
    assert scribe.only("duplicate") == (
        '"a", sent once, stands at offset 0 of orders-0 (acknowledged to process p, line 2) and offset 1 of orders-0 '
        "(read by process u, line 3)"
    )


def test_a_duplicate_in_another_partition_of_a_send_without_an_offset(scribe):
    scribe.producer.send(None, "a").ok()
    scribe.reader.polled([(P, 0, "a"), (Q, 0, "a")])
    assert "sent once, stands at offset 0 of orders-0" in scribe.only("duplicate")


def test_reading_a_record_twice_is_no_duplicate(scribe):
    scribe.sent("a", 0)
    scribe.reader.polled([(P, 0, "a")])
    scribe.loose.polled([(P, 0, "a")])
    assert scribe.judge().is_clean


def test_without_idempotence_a_retry_may_be_stored_twice(scribe):
    plain = scribe.recorder.process("plain", idempotent=False)
    scribe.sent("a", 1, by=plain)
    scribe.reader.polled([(P, 0, "a"), (P, 1, "a")])
    assert not scribe.kinds()
    assert scribe.allowed() == {"retried-send"}


def test_who_sends_a_value_again_finds_it_twice(scribe):
    scribe.producer.send(P, "a").info()
    scribe.sent("a", 1)
    scribe.reader.polled([(P, 0, "a"), (P, 1, "a")])
    assert not scribe.kinds()
    assert scribe.allowed() >= {"resent"}
    scribe.reader.polled([(P, 2, "a")])
    assert scribe.kinds() == {"duplicate"}


@pytest.mark.parametrize("first", ["commit ok", "commit info"])
def test_two_transactions_with_the_offsets_of_their_input_must_not_both_count(scribe, first):
    for end, offset in ((first, 0), ("commit ok", 2)):
        scribe.producer.begin()
        scribe.sent("effect of 7", offset)
        scribe.producer.offsets("group", {Q: 8})
        scribe.end(end, scribe.producer)
    scribe.reader.polled([(P, 2, "effect of 7")])
    assert not scribe.kinds() if first == "commit info" else scribe.kinds() == {"duplicate"}
    scribe.reader.assigned([P])
    scribe.reader.polled([(P, 0, "effect of 7")])
    assert scribe.kinds() == {"duplicate"}


def test_nor_does_one_of_them_forbid_a_plain_send_of_the_same(scribe):
    scribe.producer.begin()
    scribe.sent("a", 0)
    scribe.producer.offsets("group", {Q: 8})
    scribe.end("commit ok", scribe.producer)
    scribe.sent("a", 2)
    assert not scribe.kinds()
    assert scribe.allowed() == {"resent"}


def test_many_places_of_one_value_are_told_briefly(scribe):
    scribe.sent("a", 0)
    scribe.reader.polled([(P, offset, "a") for offset in range(8)])
    assert scribe.only("duplicate").endswith("offset 4 of orders-0 (read by process c, line 3) and 3 more")


def test_a_transaction_that_was_aborted_is_repeated(scribe):
    for end, offset in (("abort ok", 0), ("commit ok", 2)):
        scribe.producer.begin()
        scribe.sent("effect of 7", offset)
        scribe.producer.offsets("group", {Q: 8})
        scribe.end(end, scribe.producer)
    scribe.reader.polled([(P, 2, "effect of 7")])
    scribe.loose.polled([(P, 0, "effect of 7"), (P, 2, "effect of 7")])
    assert not scribe.kinds()


# ---- inconsistent offsets


def test_two_readers_find_two_values_at_one_offset(scribe):
    scribe.producer.send(P, "a")
    scribe.producer.send(P, "b")
    scribe.reader.polled([(P, 0, "a")])
    scribe.loose.polled([(P, 0, "b")])
    assert scribe.only("inconsistent-offset") == (
        'offset 0 of orders-0 holds "a" (read by process c, line 3) and "b" (read by process u, line 4)'
    )


def test_one_offset_is_told_to_two_producers(scribe):
    first, second = scribe.producer.send(P, "a"), scribe.other.send(P, "b")
    first.ok(0)
    second.ok(0)
    assert "told to process o" in scribe.only("inconsistent-offset")


def test_another_value_than_was_acknowledged_is_read(scribe):
    scribe.producer.send(P, "b")
    scribe.sent("a", 0)
    scribe.reader.polled([(P, 0, "b")])
    assert "and process c read" in scribe.only("inconsistent-offset")


def test_the_same_offset_of_two_partitions_has_two_values(scribe):
    scribe.sent("a", 0)
    scribe.sent("b", 0, Q)
    scribe.reader.polled([(P, 0, "a"), (Q, 0, "b")])
    assert scribe.judge().is_clean
