"""Those who have more requests than a turn holds stand in line: one of them a round, each of them in time."""

from collections import Counter

from tailrace.broker.serving.turns import Turns


class Loop:
    def __init__(self) -> None:
        self.ready = []

    def call_soon(self, callback) -> None:
        self.ready.append(callback)

    def round(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


class Pipeliner:
    def __init__(self, turns: Turns, served: list, requests: int) -> None:
        self.turns, self.served, self.requests = turns, served, requests
        self.had_ms: list[float] = []

    def take_turn(self) -> None:
        self.served.append(self)
        self.had_ms.append(self.turns.turn_ms)
        self.requests -= 1
        if self.requests:
            self.turns.join(self)


def test_one_of_them_has_a_turn_in_each_round_and_all_have_as_many():
    loop, served = Loop(), []
    turns = Turns(loop.call_soon)
    crowd = [Pipeliner(turns, served, 10) for _ in range(7)]
    for each in crowd:
        turns.join(each)
    for number in range(1, 71):
        loop.round()
        assert len(served) == number
    assert set(Counter(served).values()) == {10}
    assert served[:7] == served[7:14] == crowd
    loop.round()
    loop.round()
    assert not loop.ready


def test_while_there_is_a_line_others_begin_one_request_only():
    loop, served = Loop(), []
    turns = Turns(loop.call_soon)
    alone_ms = turns.turn_ms
    assert alone_ms > 0
    first, second = Pipeliner(turns, served, 2), Pipeliner(turns, served, 2)
    turns.join(first)
    turns.join(second)
    assert turns.turn_ms == 0
    for _ in range(4):
        loop.round()
    assert turns.turn_ms == alone_ms
    assert 0 < first.had_ms[0] < alone_ms
    assert second.had_ms[-1] == alone_ms  # The last one stands alone.


def test_who_leaves_has_no_turn_and_a_turn_that_fails_ends_nobody_elses():
    class Failing(Pipeliner):
        def take_turn(self) -> None:
            raise ZeroDivisionError

    loop, served = Loop(), []
    turns = Turns(loop.call_soon)
    gone, last = Pipeliner(turns, served, 1), Pipeliner(turns, served, 1)
    turns.join(gone)
    turns.join(Failing(turns, served, 1))
    turns.join(last)
    assert turns.leave(gone)
    assert not turns.leave(gone)
    try:
        loop.round()
    except ZeroDivisionError:
        pass
    loop.round()
    assert served == [last]
