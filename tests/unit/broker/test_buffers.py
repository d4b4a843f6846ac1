"""Receive buffers: what is lent in all and to one address, what is never refused, and what is given back."""

import errno

import pytest

from tailrace.broker.serving.buffers import Account, BufferPool
from tailrace.broker.serving.inbox import Inbox
from tailrace.model.ports import Buffer
from tailrace.real.memory import RealMemory

KIB = 1 << 10
MIB = 1 << 20
RESERVED = 32 * KIB


class Told(list):
    """Callbacks that the pool has scheduled."""

    def run(self) -> None:
        while self:
            self.pop(0)()


def pool(**settings: int) -> BufferPool:
    told = Told()
    values = {"lent_max_bytes": 8 * MIB, "account_max_bytes": 4 * MIB, "reserved_bytes": RESERVED}
    made = BufferPool(**{**values, "kept_max_bytes": 4 * MIB, **settings}, memory=RealMemory(), call_soon=told.append)
    made.told = told
    return made


def inbox(lender: BufferPool, account: Account | None = None) -> Inbox:
    return Inbox(lender, account or Account(), hint_max_bytes=MIB)


def fill(box: Inbox, size: int, *, claim: int = 64 * MIB) -> bool:
    """Receives so much of a request, as a connection does; False if it has to wait for memory."""
    if box.buffer is None:
        box.borrow()
    box.view[:4] = (claim - 4).to_bytes(4, "big")
    while box.end < size:
        box.end = min(size, len(box.view))
        if box.end == len(box.view) < claim and not box.grow():
            return False
    return True


def test_a_small_buffer_is_lent_whatever_others_hold():
    lender = pool(account_max_bytes=-1)
    assert fill(inbox(lender), 60 * MIB)  # The only borrower is never refused.
    assert lender.lent_bytes > 8 * MIB
    small = inbox(lender)
    small.borrow()
    assert len(small.view) == RESERVED
    assert not fill(small, RESERVED, claim=40 * KIB)
    small.give_back()
    other = inbox(lender)
    other.borrow()
    assert len(other.view) == RESERVED


def test_what_is_lent_in_all_is_bounded_by_what_arrived_and_not_by_what_was_claimed():
    lender = pool(account_max_bytes=-1)
    boxes = [inbox(lender) for _ in range(4)]
    assert all(fill(box, 1_500_000, claim=100 * MIB) for box in boxes)
    assert lender.lent_bytes == 8 * MIB
    assert not fill(boxes[0], 3 * MIB, claim=100 * MIB)
    assert lender.lent_bytes == 8 * MIB
    for box in boxes:
        box.give_back()
    assert lender.lent_bytes == 0


def test_one_address_leaves_the_rest_to_others():
    lender = pool()
    greedy, other = Account(), Account()
    boxes = [inbox(lender, greedy) for _ in range(6)]
    filled = [fill(box, 1_500_000) for box in boxes]
    assert filled.count(True) == 2
    assert greedy.lent_bytes <= 4 * MIB
    assert fill(inbox(lender, other), 1_500_000)
    for box in boxes:
        box.give_back()
    assert greedy.lent_bytes == 0
    assert lender.lent_bytes == other.lent_bytes == 2 * MIB


def test_who_waits_is_told_when_its_own_address_has_room():
    lender = pool()
    greedy = Account()
    first, second, third = [inbox(lender, greedy) for _ in range(3)]
    assert fill(first, 1_500_000)
    assert fill(second, 1_500_000)
    assert not fill(third, 1_500_000)
    woken = []
    third.wait_for_memory(lambda: woken.append(third.grow()))
    stranger = inbox(lender)
    assert fill(stranger, 1_500_000)
    stranger.give_back()
    lender.told.run()
    assert woken == []
    first.give_back()
    lender.told.run()
    assert woken == [True]
    assert not lender.is_short


def test_a_handlers_request_counts_for_its_address():
    lender = pool()
    account = Account()
    lender.hold(3 * MIB, account)
    box = inbox(lender, account)
    assert not fill(box, 2 * MIB)
    lender.let_go(3 * MIB, account)
    assert fill(box, 2 * MIB)


def test_a_large_request_lies_in_a_mapping_of_its_own_size_and_keeps_its_bytes():
    lender = pool(account_max_bytes=-1)
    box = inbox(lender)
    claim = 3 * MIB + 5000
    content = bytes(range(256)) * (claim // 256 + 1)
    sent = 0
    box.borrow()
    box.view[:4] = (claim - 4).to_bytes(4, "big")
    box.end = sent = 4
    while sent < claim:
        step = min(len(box.view) - box.end, 10_007)
        box.view[box.end : box.end + step] = content[sent : sent + step]
        box.end += step
        sent += step
        if box.end == len(box.view) < claim:
            assert box.grow()
    assert not isinstance(box.buffer, bytearray)
    assert len(box.buffer) == 4 * MIB
    assert len(box.view) == lender.lent_bytes == claim
    assert box.view[4:] == content[4:claim]
    assert box.missing_bytes == 0
    assert box.buffer.startswith(content[100:200], 100)
    box.give_back()
    assert lender.lent_bytes == 0


def test_mappings_are_kept_for_the_next_request_of_their_size():
    lender = pool(account_max_bytes=-1, kept_max_bytes=32 * MIB)
    box = inbox(lender)
    assert fill(box, 3 * MIB, claim=3 * MIB)
    used = box.buffer
    box.give_back()
    other = inbox(lender)
    assert fill(other, 4 * MIB, claim=4 * MIB)
    assert other.buffer is used
    other.give_back()
    assert fill(box, 20 * MIB, claim=20 * MIB)
    box.give_back()
    assert lender._kept_bytes < 20 * MIB  # Too large to be kept.


def test_a_system_without_memory_leaves_the_accounts_right(monkeypatch):
    def refuse(size_bytes: int) -> Buffer:
        raise OSError(errno.ENOMEM, f"cannot allocate {size_bytes} bytes")

    lender = pool()
    monkeypatch.setattr(lender._memory, "allocate", refuse)
    account = Account()
    box = inbox(lender, account)
    with pytest.raises(OSError, match="allocate"):
        fill(box, 2 * MIB)
    box.give_back()
    assert (lender.lent_bytes, account.lent_bytes) == (0, 0)


def test_who_holds_more_than_it_needs_shrinks_while_others_wait():
    lender = pool()
    box = inbox(lender)
    box.borrow()
    box.view[10:110] = bytes(range(100))
    box.start, box.end = 10, 110
    box.shrink()
    assert (len(box.view), lender.lent_bytes) == (RESERVED, RESERVED)
    assert box.view[box.start : box.end] == bytes(range(100))
    box.end = RESERVED
    box.shrink()
    assert len(box.view) == RESERVED


def test_kept_buffers_that_lie_idle_are_dropped_and_the_allocator_is_trimmed_once_it_is_quiet():
    lender = pool(kept_max_bytes=64 * MIB, lent_max_bytes=-1, account_max_bytes=-1)
    account = Account()
    lent = [lender.lend(MIB, account) for _ in range(32)]
    for buffer in lent:
        lender.give_back(buffer, MIB, account)
    lent.clear()
    assert lender._kept_bytes == 32 * MIB
    trims = [lender.age(now_ms=10_000.0 * look) for look in range(1, 7)]
    assert lender._kept_bytes == 0
    assert trims.count(True) >= 1
    assert not lender.age(now_ms=60_001)  # Not before ten seconds are over.
    assert not lender.age(now_ms=500_000)


def test_memory_is_wanted_of_those_it_would_help_to_have_it_from():
    lender = pool()
    greedy, other = Account(), Account()
    boxes = [inbox(lender, greedy) for _ in range(3)]
    assert [fill(box, 1_500_000) for box in boxes] == [True, True, False]
    assert lender.find_short() == set()
    boxes[2].wait_for_memory(lambda: None)
    assert lender.find_short() == {greedy}
    others = [inbox(lender, each) for each in (other, other, Account())]
    filled = [fill(box, 1_500_000) for box in others]
    assert not all(filled)
    others[filled.index(False)].wait_for_memory(lambda: print("told"))
    assert lender.find_short() is None
