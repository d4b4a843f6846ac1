"""Those who have more requests than a turn holds stand in line: one of them a round, each of them in time."""

import asyncio
import socket
from collections import Counter
from types import SimpleNamespace

import pytest

from tailrace.broker.serving.turns import RUN_BYTES, Client, Turns
from tailrace.model.security import Principal
from tailrace.sim.clock import SimClock


def client(address: str, user: str) -> Client:
    return SimpleNamespace(address=address, principal=Principal("User", user))


SOMEBODY = client("a", "alice")


class Loop:
    """Every turn takes a millisecond."""

    def __init__(self) -> None:
        self.ready = []
        self.now_ms = 0.0

    def monotonic_ms(self) -> float:
        self.now_ms += 1
        return self.now_ms

    def call_soon(self, callback) -> None:
        self.ready.append(callback)

    def round(self) -> None:
        """One for those who read, and one with a turn."""
        for _ in range(2):
            ready, self.ready = self.ready, []
            for callback in ready:
                callback()


class Pipeliner:
    def __init__(self, turns: Turns, served: list, requests: int, client: Client | None = None) -> None:
        self.turns, self.served, self.requests = turns, served, requests
        self.client = client or SOMEBODY
        self.had_ms: list[float] = []

    def take_turn(self) -> bool:
        self.served.append(self)
        self.had_ms.append(self.turns.turn_ms)
        self.requests -= 1
        if self.requests:
            self.turns.join(self, self.client)
        return False


def test_one_of_them_has_a_turn_in_each_round_and_all_have_as_many():
    loop, served = Loop(), []
    turns = Turns(loop, loop.call_soon)
    crowd = [Pipeliner(turns, served, 10) for _ in range(7)]
    for each in crowd:
        turns.join(each, SOMEBODY)
    for number in range(1, 71):
        loop.round()
        assert len(served) == number
    assert set(Counter(served).values()) == {10}
    assert served[:7] == served[7:14] == crowd
    loop.round()
    loop.round()
    assert not loop.ready


@pytest.mark.parametrize("another", [("b", "alice"), ("a", "bob")], ids=["another address", "another user"])
def test_many_connections_of_one_client_are_not_many_turns(another):
    loop, served = Loop(), []
    turns = Turns(loop, loop.call_soon)
    many = [Pipeliner(turns, served, 10, client("a", "alice")) for _ in range(9)]
    one = Pipeliner(turns, served, 10, client(*another))
    for each in (*many, one):
        turns.join(each, each.client)
    for _ in range(20):
        loop.round()
    assert served[1:20:2] == [one] * 10
    # Among themselves they have as many.
    assert served[0:18:2] == many
    for _ in range(80):
        loop.round()
    assert set(Counter(served).values()) == {10}
    assert not turns.leave(one, one.client)


def test_while_there_is_a_line_others_begin_one_request_only():
    loop, served = Loop(), []
    turns = Turns(loop, loop.call_soon)
    alone_ms = turns.turn_ms
    assert alone_ms > 0
    first, second = Pipeliner(turns, served, 2), Pipeliner(turns, served, 2)
    turns.join(first, SOMEBODY)
    turns.join(second, SOMEBODY)
    assert turns.turn_ms == 0
    for _ in range(4):
        loop.round()
    assert turns.turn_ms == alone_ms
    assert 0 < first.had_ms[0] < alone_ms
    assert second.had_ms[-1] == alone_ms  # The last one stands alone.


def test_who_leaves_has_no_turn_and_a_turn_that_fails_ends_nobody_elses():
    class Failing(Pipeliner):
        def take_turn(self) -> bool:
            raise ZeroDivisionError

    loop, served = Loop(), []
    turns = Turns(loop, loop.call_soon)
    gone, last = Pipeliner(turns, served, 1), Pipeliner(turns, served, 1)
    turns.join(gone, SOMEBODY)
    turns.join(Failing(turns, served, 1), SOMEBODY)
    turns.join(last, SOMEBODY)
    assert turns.leave(gone, SOMEBODY)
    assert not turns.leave(gone, SOMEBODY)
    try:
        loop.round()
    except ZeroDivisionError:
        pass
    loop.round()
    assert served == [last]


def test_few_pieces_of_large_requests_are_received_in_a_round_and_none_while_there_is_a_line():
    clock, loop, served = SimClock(), Loop(), []
    turns = Turns(clock, loop.call_soon)
    crowd = [Pipeliner(turns, served, 1) for _ in range(4)]
    for _ in range(3):
        # As many as begin within a third of a millisecond, whatever they take.
        assert [_admits(turns, each, clock, 0.2) for each in crowd] == [True, True, False, False]
        loop.round()
        assert [_admits(turns, each, clock, 2) for each in crowd] == [True, False, False, False]
        loop.round()
        assert [_admits(turns, each, clock, 0.04) for each in crowd] == [True] * 4
        loop.round()
    turns.join(crowd[0], SOMEBODY)
    assert not turns.admits_piece(crowd[1])
    loop.round()
    assert len(served) == 1
    assert turns.admits_piece(crowd[1])
    # Whoever is alone always may, and so may another one when the first has gone: nobody says that a round is over.
    assert all(_admits(turns, crowd[1], clock, 1) for _ in range(5))
    clock.advance_ms(10)
    assert all(_admits(turns, crowd[2], clock, 1) for _ in range(5))
    assert not loop.ready


def _admits(turns: Turns, connection: Pipeliner, clock: SimClock, takes_ms: float) -> bool:
    is_admitted = turns.admits_piece(connection)
    clock.advance_ms(takes_ms * is_admitted)
    return is_admitted


def test_those_who_only_receive_share_a_round_while_it_is_short():
    clock, loop, served = SimClock(), Loop(), []
    turns = Turns(clock, loop.call_soon)

    class Receiver(Pipeliner):
        takes_ms = 0.0

        def take_turn(self) -> bool:
            clock.advance_ms(self.takes_ms)
            super().take_turn()
            return True

    crowd = [Receiver(turns, served, 3) for _ in range(5)]
    for each in crowd:
        turns.join(each, SOMEBODY)
    loop.round()
    assert served == crowd
    Receiver.takes_ms = 0.2
    loop.round()
    assert served == crowd + crowd[:2]
    Receiver.takes_ms = 5.0
    loop.round()
    assert served == crowd + crowd[:3]


def test_of_many_runs_few_are_in_a_round_and_the_others_have_one_request():
    clock, loop, served = SimClock(), Loop(), []
    turns = Turns(clock, loop.call_soon)
    whole = turns.turn_ms
    crowd = [Pipeliner(turns, served, 1) for _ in range(4)]
    for _ in range(3):
        had_ms = []
        for each in crowd:
            had_ms.append(turns.begin_run(each, RUN_BYTES))
            clock.advance_ms(0.2 if had_ms[-1] else 0.01)
        assert had_ms == [whole, whole, 0.0, 0.0]
        assert turns.begin_run(crowd[3], RUN_BYTES - 1) == whole
        loop.round()
    # What was received as a piece is no second one.
    assert turns.admits_piece(crowd[0])
    clock.advance_ms(2)
    assert turns.begin_run(crowd[0], RUN_BYTES) == whole
    assert turns.begin_run(crowd[1], RUN_BYTES) == 0.0
    loop.round()

    class Runner(Pipeliner):
        def take_turn(self) -> bool:
            assert self.turns.begin_run(self, RUN_BYTES) == self.turns.turn_ms > 0
            return super().take_turn()

    for each in (Runner(turns, served, 1), Runner(turns, served, 1)):
        turns.join(each, SOMEBODY)
    assert turns.begin_run(crowd[0], RUN_BYTES) == 0.0
    loop.round()
    loop.round()
    assert len(served) == 2


async def test_what_arrives_during_a_turn_is_taken_before_the_next_one():
    """By the loop that brokers run on."""
    loop = asyncio.get_running_loop()
    turns, told = Turns(Loop(), loop.call_soon), []
    ours, theirs = socket.socketpair()

    class Busy(Pipeliner):
        def take_turn(self) -> bool:
            told.append("turn")
            theirs.send(b"x")
            return super().take_turn()

    with ours, theirs:
        loop.add_reader(ours, lambda: told.append(ours.recv(1)))
        turns.join(Busy(turns, [], 3), SOMEBODY)
        for _ in range(20):
            await asyncio.sleep(0)
        loop.remove_reader(ours)
    assert told == ["turn", b"x"] * 3
