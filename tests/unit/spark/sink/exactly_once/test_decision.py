"""What is decided about a write, by fingerprints and earlier decisions."""

import pyarrow as pa
import pytest

from tailrace.client.lanes import ANONYMOUS, ProducerIdentity
from tailrace.spark.sink.exactly_once.decision import (
    Decision,
    Ending,
    ExactlyOnceError,
    Fingerprint,
    Part,
    Report,
    decide_ending,
)
from tailrace.spark.sink.exactly_once.fingerprint import Fingerprints
from tailrace.spark.sink.exactly_once.names import Names


def part(index: int, epoch: int = 0, *, checksum: int = 7) -> Part:
    return Part(index, ProducerIdentity(100 + index, epoch), Fingerprint(1, checksum))


def written(*parts: Part) -> list[Report]:
    return [Report(each, has_written=True) for each in parts]


EMPTY = Part(2, ANONYMOUS, Fingerprint())
EARLIER = Decision(5, "run 1", 1000, (part(0), part(1), EMPTY))
NEWER = (part(0, 2), part(1, 2), EMPTY)


def test_a_decision_survives_its_bytes():
    assert Decision.from_bytes(EARLIER.to_bytes()) == EARLIER
    finished = EARLIER._replace(is_finished=True)
    assert Decision.from_bytes(finished.to_bytes()) == finished


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"format":1}', EARLIER.to_bytes()[:-1], b"\xff"])
def test_what_is_no_decision_is_refused(value: bytes):
    with pytest.raises(ExactlyOnceError, match="no decision"):
        Decision.from_bytes(value)


def test_a_decision_of_a_later_release_is_left_to_it():
    with pytest.raises(ExactlyOnceError, match="newer release"):
        Decision.from_bytes(EARLIER.to_bytes().replace(b'"format":1', b'"format":2'))


@pytest.mark.parametrize("earlier", [None, EARLIER._replace(batch=4, is_finished=True)])
def test_a_new_batch_commits_what_its_tasks_wrote(earlier: Decision | None):
    assert decide_ending(earlier, written(*NEWER), batch=5) == Ending(NEWER, NEWER)
    assert decide_ending(earlier, written(EMPTY), batch=5) == Ending()


def test_what_was_decided_and_committed_is_not_written_again():
    needless = Ending(needless=NEWER[:2])
    assert decide_ending(EARLIER._replace(is_finished=True), written(*NEWER), batch=5) == needless
    assert decide_ending(EARLIER, written(*NEWER), batch=5, lost=()) == needless
    skipped = [Report(Part(each.index, ANONYMOUS, each.fingerprint), has_written=False) for each in NEWER]
    assert decide_ending(EARLIER, skipped, batch=5, lost=()) == Ending()


def test_only_lost_parts_are_written_again():
    found = decide_ending(EARLIER, written(*NEWER), batch=5, lost=[1])
    assert found == Ending((part(0), part(1, 2), EMPTY), (part(1, 2),), (part(0, 2),))


def test_if_every_part_is_lost_the_rows_may_be_others():
    other = (part(0, 2, checksum=8), part(1, 2, checksum=9))
    assert decide_ending(EARLIER, written(*other), batch=5, lost=[0, 1]) == Ending(other, other)


@pytest.mark.parametrize(
    "now",
    [
        (part(0, 2, checksum=8), part(1, 2), EMPTY),
        (part(0, 2), part(1, 2, checksum=8), EMPTY),
        (part(0, 2), part(1, 2)),
        (part(0, 2), part(1, 2), EMPTY, part(3, 2)),
    ],
)
def test_if_one_part_is_committed_other_rows_fail_loudly(now: tuple[Part, ...]):
    with pytest.raises(ExactlyOnceError, match="half written"):
        decide_ending(EARLIER, written(*now), batch=5, lost=[1])


def test_a_batch_that_was_overtaken_is_refused():
    with pytest.raises(ExactlyOnceError, match="batch 4 comes too late"):
        decide_ending(EARLIER, written(*NEWER), batch=4)


def test_a_batch_whose_predecessor_is_not_complete_is_refused():
    with pytest.raises(ExactlyOnceError, match="batch 6 comes too early: batch 5"):
        decide_ending(EARLIER, written(*NEWER), batch=6)


def test_a_decision_that_has_gone_is_noticed():
    with pytest.raises(ExactlyOnceError, match="was the decision topic deleted"):
        decide_ending(None, [Report(part(0), has_written=False)], batch=5)


def rows(*values: tuple[str | None, str | None]) -> pa.RecordBatch:
    keys, contents = zip(*values, strict=True)
    return pa.record_batch({"key": pa.array(keys, pa.string()), "value": pa.array(contents, pa.string())})


def fingerprint(*batches: pa.RecordBatch) -> Fingerprint:
    found = Fingerprints()
    assert list(found.watch(iter(batches))) == list(batches)
    return found.fingerprint


def test_a_fingerprint_is_of_the_rows_and_not_of_their_order():
    one, two, three = ("a", "1"), (None, "2"), ("c", None)
    whole = fingerprint(rows(one, two, three))
    assert whole.rows == 3
    assert whole == fingerprint(rows(three), rows(two, one))
    binary = pa.record_batch({name: rows(one, two, three).column(name).cast(pa.binary()) for name in ("key", "value")})
    assert whole == fingerprint(binary)
    others = [
        rows(one, two),
        rows(one, two, ("c", "")),
        rows(("1", "a"), two, three),
        rows(("a", "2"), (None, "1"), three),
    ]
    assert len({whole, *map(fingerprint, others)}) == 5


def test_names_of_one_scope_are_not_those_of_another():
    names = Names("p", "a")
    assert names.part_index(names.part(12)) == 12
    strangers = [names.driver, Names("p", "a-1").part(2), Names("q", "a").part(2), Names("p", "ab").part(2)]
    assert [names.part_index(each) for each in strangers] == [None] * 4
