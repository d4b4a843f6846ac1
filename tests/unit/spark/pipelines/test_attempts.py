"""Which attempt at a batch counts: the one that the sink has."""

import pytest

from tailrace.spark.pipelines.beside.attempts import Note, Verdict, decide_attempts


def verdict(*notes):
    """Of one batch, from the notes of its second attempt on: (run, whether the sink had the batch by then)."""
    found = decide_attempts(Note(number, 7, run, landed) for number, (run, landed) in enumerate(notes))
    return found[7]


@pytest.mark.parametrize(
    ("notes", "counts", "is_in_doubt"),
    [
        ([("b", False)], "b", False),
        ([("b", True)], None, False),  # the first, which had no reason to write a note
        ([("b", False), ("c", False)], "c", False),
        ([("b", False), ("c", True)], "b", False),
        ([("b", True), ("c", True)], None, False),
        ([("b", False), ("c", True), ("d", True)], "b", False),
        ([("b", None)], "b", True),
        ([("b", False), ("c", None)], "c", True),
        ([("b", None), ("c", True)], "b", True),
        ([("b", True), ("c", None)], None, False),
    ],
)
def test_the_attempt_that_landed_counts(notes, counts, is_in_doubt):
    assert verdict(*notes) == Verdict(counts, tuple(run for run, _ in notes), is_in_doubt)


def test_batches_are_judged_by_themselves():
    found = decide_attempts([Note(2, 9, "c", True), Note(1, 7, "b", False)])
    assert found == {7: Verdict("b", ("b",), False), 9: Verdict(None, ("c",), False)}
