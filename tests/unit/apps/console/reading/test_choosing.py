"""Filters in child processes: they choose as in this one, and what costs too much ends the child, not the console."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from tailrace.apps.console.reading import chooser
from tailrace.apps.console.reading.choosing import Choosers, Filter, FilterCostError
from tailrace.apps.console.reading.filters import JSON_MAX_BYTES, FilterError, parse_filter
from tailrace.wire.payload import Record

ODD = (("header \udcff", None), ("trace", b"\xff"))


def records(count):
    return [Record(each, 1000, None, json.dumps({"id": each}).encode(), ODD) for each in range(count)]


async def test_a_child_chooses_what_this_process_would():
    async with aclosing(Choosers()) as choosers:
        text = 'value.id >= 3 and not value.id = 200 and header.trace contains "\ufffd"'
        some = records(450)
        taken = await Filter(text, choosers).choose(2, some)
        test = parse_filter(text)
        assert taken == [place for place, each in enumerate(some) if test(2, each)]
        assert len(taken) == 446
        assert await Filter("partition = 2", choosers).choose(2, [Record(0, 0, None, None)]) == [0]
        assert await Filter("partition = 2", choosers).choose(2, []) == []


async def test_many_ask_at_once():
    async with aclosing(Choosers()) as choosers:
        found = await asyncio.gather(
            *(Filter(f"value.id = {each}", choosers).choose(0, records(50)) for each in range(20))
        )
        assert found == [[each] for each in range(20)]


def test_what_is_no_filter_is_told_before_anything_is_read():
    with pytest.raises(FilterError, match="no field"):
        Filter("os.system = 1", Choosers())


async def test_a_child_that_is_ended_is_told_and_replaced():
    """As the system ends one that takes too much processor time."""
    async with aclosing(Choosers()) as choosers:
        filter_ = Filter("value.id = 1", choosers)
        assert await filter_.choose(0, records(3)) == [1]
        (child,) = choosers._idle
        child.kill()
        await child.wait()
        with pytest.raises(FilterCostError, match=r"needed more than .* from offset 0 of partition 0"):
            await filter_.choose(0, records(3))
        assert await filter_.choose(0, records(3)) == [1]


def test_a_record_that_is_too_large_to_look_into_is_told():
    some = records(3)
    some[1] = Record(1, 1000, None, b'{"id": 1, "rest": "' + b"x" * JSON_MAX_BYTES + b'"}')
    assert chooser.answer_to(("value.id >= 0", [(0, *each) for each in some])) == ([0, 2], [1])
    assert chooser.answer_to(('value contains "rest"', [(0, *each) for each in some])) == ([1], [])


@pytest.mark.long
async def test_a_filter_that_works_for_ever_is_ended():
    """Fifty paths into JSON that is deep and large: nothing in it is cached, as it is no JSON in the end."""
    async with aclosing(Choosers()) as choosers:
        value = b"[" + b'{"a":[1,2,3]},' * 1_000_000 + b"oops"
        assert len(value) < JSON_MAX_BYTES
        text = " or ".join(f"value[{each}] = 1" for each in range(50))
        with pytest.raises(FilterCostError):
            await Filter(text, choosers).choose(0, [Record(7, 0, None, value)] * 10)
        assert await Filter("value exists", choosers).choose(0, records(1)) == [0]
