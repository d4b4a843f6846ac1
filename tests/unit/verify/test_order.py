"""Order and completeness: each anomaly, and a near miss that is none."""

import pytest

from tests.unit.verify.scribe import P, Q, Scribe


@pytest.fixture
def scribe():
    return Scribe()


# ---- lost write, torn transaction, unseen


def test_a_lost_write(scribe):
    for offset, value in enumerate("abc"):
        scribe.sent(value, offset)
    scribe.reader.polled([(P, 0, "a"), (P, 2, "c")])
    assert scribe.only("lost-write") == (
        '"b" at offset 1 of orders-0 was acknowledged to process p (line 4); process c read orders-0 from offset 0 '
        "to 2 (line 7) but not this, nor did anyone else"
    )


def test_what_nobody_went_past_is_not_lost(scribe):
    for offset, value in enumerate("abcd"):
        scribe.sent(value, offset)
    scribe.reader.polled([(P, 1, "b"), (P, 2, "c")])
    assert scribe.judge().is_clean


def test_what_lies_between_two_readers_is_not_lost(scribe):
    for offset, value in enumerate("abc"):
        scribe.sent(value, offset)
    scribe.reader.polled([(P, 0, "a")])
    scribe.loose.polled([(P, 2, "c")])
    assert scribe.judge().is_clean


def test_nor_what_one_reader_left_out_because_it_sought(scribe):
    for offset, value in enumerate("abc"):
        scribe.sent(value, offset)
    scribe.reader.polled([(P, 0, "a")])
    scribe.reader.sought([P])
    scribe.reader.polled([(P, 2, "c")])
    assert scribe.judge().is_clean


@pytest.mark.parametrize("end", ["abort ok", "commit info", "commit fail", ""])
def test_what_was_not_committed_for_certain_is_not_lost(scribe, end):
    scribe.sent("a", 0)
    scribe.write(end, (P, 1, "b"), by=scribe.other)
    scribe.sent("c", 3)
    scribe.reader.polled([(P, 0, "a"), (P, 3, "c")])
    scribe.reader.drained()
    assert scribe.judge().is_clean


def test_a_committed_transaction_that_is_lost(scribe):
    scribe.sent("a", 0)
    scribe.write("commit ok", (P, 1, "b"))
    scribe.sent("c", 3)
    scribe.loose.polled([(P, 0, "a"), (P, 3, "c")])
    assert "and committed (line 7)" in scribe.only("lost-write")


@pytest.mark.parametrize("end", ["commit ok", "commit info"])
def test_a_torn_transaction(scribe, end):
    scribe.write(end, (P, 1, "b"), (Q, 0, "x"))
    scribe.sent("c", 3)
    scribe.reader.polled([(Q, 0, "x"), (P, 3, "c")])
    assert scribe.judge().is_clean
    scribe.reader.drained()
    assert 'in a transaction of which process c read "x"' in scribe.only("torn-transaction")


def test_unseen_after_the_drain(scribe):
    scribe.sent("a", 0)
    scribe.sent("b", 1)
    scribe.producer.send(Q, "x").ok()
    scribe.reader.polled([(P, 0, "a")])
    assert scribe.judge().is_clean
    scribe.reader.drained([P])
    assert "nobody read it until all was drained (line 8)" in scribe.only("unseen")
    scribe.reader.drained()
    assert scribe.judge().findings.counts["unseen"] == 2


def test_what_is_sent_after_the_drain_need_not_be_seen(scribe):
    scribe.sent("a", 0)
    pending = scribe.producer.send(P, "b")
    scribe.reader.polled([(P, 0, "a")])
    scribe.reader.drained()
    pending.ok(1)
    scribe.write("commit ok", (P, 2, "c"))
    assert scribe.judge().is_clean


@pytest.mark.parametrize("acks", [0, 1])
def test_what_the_leader_alone_confirmed_may_be_lost_and_its_offset_given_anew(scribe, acks):
    producer = scribe.recorder.process("x", acks=acks)
    scribe.sent("a", 0)
    scribe.sent("b", 1, by=producer)
    scribe.sent("c", 1)
    scribe.sent("d", 2)
    scribe.reader.polled([(P, 0, "a"), (P, 1, "c"), (P, 2, "d")])
    scribe.reader.drained()
    assert scribe.judge().is_clean
    assert scribe.allowed() == {"unknown-outcome"}


# ---- nonmonotonic and skipped polls


@pytest.mark.parametrize(("offset", "words"), [(0, "and then offset 0"), (1, "and then the same offset again")])
def test_a_poll_that_goes_back(scribe, offset, words):
    for each, value in enumerate("ab"):
        scribe.sent(value, each)
    scribe.reader.polled([(P, 0, "a"), (P, 1, "b")])
    scribe.reader.polled([(P, offset, "ab"[offset])])
    assert words in scribe.only("nonmonotonic-poll")


def test_within_one_poll_too(scribe):
    for each, value in enumerate("ab"):
        scribe.sent(value, each)
    scribe.reader.polled([(P, 1, "b"), (P, 0, "a")])
    assert scribe.kinds() == {"nonmonotonic-poll"}


@pytest.mark.parametrize("how", ["assigned", "sought"])
def test_a_consumer_may_go_back_where_it_was_assigned_anew_or_sought(scribe, how):
    for each, value in enumerate("ab"):
        scribe.sent(value, each)
        scribe.sent(value * 2, each, Q)
    scribe.reader.polled([(P, 0, "a"), (P, 1, "b"), (Q, 0, "aa"), (Q, 1, "bb")])
    getattr(scribe.reader, how)([P])
    scribe.reader.polled([(P, 0, "a"), (P, 1, "b")])
    assert scribe.judge().is_clean
    assert scribe.allowed() == {"rewound-poll"}
    scribe.reader.polled([(Q, 0, "aa"), (Q, 1, "bb")])
    assert scribe.kinds() == {"nonmonotonic-poll"}


def test_another_consumer_begins_where_it_likes(scribe):
    for each, value in enumerate("ab"):
        scribe.sent(value, each)
    scribe.reader.polled([(P, 0, "a"), (P, 1, "b")])
    scribe.recorder.process("c2", isolation="read_committed").polled([(P, 0, "a"), (P, 1, "b")])
    assert not scribe.judge().findings.counts


def test_a_poll_that_skips(scribe):
    for each, value in enumerate("abcde"):
        scribe.sent(value, each)
    scribe.reader.polled([(P, each, value) for each, value in enumerate("abcde")])
    scribe.loose.polled([(P, 0, "a"), (P, 1, "b"), (P, 4, "e")])
    assert scribe.only("skipped-poll") == (
        'process u read orders-0 from offset 0 to 4 (line 12) but not "c" at offset 2, which process c read (line 11) '
        "and 1 more"
    )
    assert scribe.judge(allow=["skipped-poll"]).is_clean
    scribe.other.polled([(P, 1, "b"), (P, 3, "d")])
    assert scribe.judge().anomalies[1].sentence.endswith("which process c read (line 11)")


def test_offsets_that_hold_no_record_and_aborted_ones_are_not_skipped(scribe):
    scribe.sent("a", 0)
    scribe.write("abort ok", (P, 1, "b"))
    scribe.sent("c", 3)
    scribe.loose.polled([(P, 0, "a"), (P, 1, "b"), (P, 3, "c")])
    scribe.reader.polled([(P, 0, "a")])
    scribe.reader.polled([(P, 3, "c")])
    assert not scribe.kinds()


# ---- nonmonotonic sends


def test_a_send_that_goes_back(scribe):
    scribe.sent("a", 5)
    scribe.sent("b", 4)
    assert scribe.only("nonmonotonic-send") == (
        'process p sent "a" (line 1) before process p sent "b" (line 3), but they stand in orders-0 at offsets 5 and 4'
    )


def test_also_behind_the_back_of_another_producer(scribe):
    scribe.sent("a", 5)
    scribe.sent("b", 4, by=scribe.other)
    assert scribe.kinds() == {"nonmonotonic-send"}


def test_sends_of_two_producers_under_way_together_have_no_order(scribe):
    first, second = scribe.producer.send(P, "a"), scribe.other.send(P, "b")
    first.ok(5)
    second.ok(4)
    assert scribe.judge().is_clean


def test_nor_have_partitions(scribe):
    scribe.sent("a", 5)
    scribe.sent("b", 4, Q)
    assert scribe.judge().is_clean


@pytest.mark.parametrize("idempotent", [True, False])
def test_sends_of_one_producer_keep_their_order_if_it_is_idempotent(scribe, idempotent):
    producer = scribe.recorder.process("x", idempotent=idempotent)
    first, second = producer.send(P, "a"), producer.send(P, "b")
    second.ok(0)
    first.ok(1)
    assert scribe.kinds() == ({"nonmonotonic-send"} if idempotent else set())
    assert scribe.allowed() == (set() if idempotent else {"reordered-send"})
