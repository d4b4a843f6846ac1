"""The report of an audit: verdict, text, JSON and page, from figures that are written here."""

import json
from xml.etree import ElementTree

import pytest

from tailrace.spark.audit.declaration import KINDS
from tailrace.spark.audit.page import page
from tailrace.spark.audit.profile import Gap, PartitionFigures, Point, choose_step_s
from tailrace.spark.audit.report import Check, Difference, Place, Report, SideFigures, gap_text

FIGURES = PartitionFigures("orders-0", 1200, 0, 1199, 1_700_000_000_000, 1_700_000_060_000)


def report(*checks: Check, **changes) -> Report:
    side = SideFigures("topic orders", 1200, (FIGURES,), (Point(1_700_000_000, 700), Point(1_700_000_060, 500)), {})
    given = {
        "unchecked": {"withdrawn": "only a history knows"},
        "step_s": 60,
        "finished": 1_700_000_100,
        "duration_s": 2,
    }
    return Report("orders landed", side, side._replace(name="table /data"), checks, **{**given, **changes})


def check(kind: str, records: int, *samples: str, allowed: bool = False) -> Check:
    return Check(kind, records, allowed, samples, tuple({"sentence": sample} for sample in samples))


def test_it_is_clean_without_differences_and_with_those_that_are_allowed():
    assert report(check("lost", 0), check("gap", 17, allowed=True)).is_clean
    assert (
        report(check("lost", 0), check("gap", 17, allowed=True)).verdict == "clean: 1,200 records, no difference (lost)"
    )
    found = report(check("lost", 1), check("duplicate", 2_000), check("gap", 17, allowed=True))
    assert not found.is_clean
    assert found.verdict == "differences: 1 lost, 2,000 duplicate"


def test_the_text_has_figures_evidence_and_what_was_not_checked():
    text = report(
        check("lost", 1, '"k7" is missing'), check("changed", 0), check("gap", 17, "a gap", allowed=True)
    ).text()
    assert text == (
        "orders landed: differences: 1 lost\n"
        "\n"
        "expected  topic orders: 1,200 records\n"
        "  orders-0: 1,200 records, offsets 0 to 1,199\n"
        "actual    table /data: 1,200 records\n"
        "  orders-0: 1,200 records, offsets 0 to 1,199\n"
        "\n"
        f"lost: 1 ({KINDS['lost']})\n"
        '  "k7" is missing\n'
        "\n"
        f"gap: 17, allowed ({KINDS['gap']})\n"
        "  a gap\n"
        "\n"
        "not checked: withdrawn (only a history knows)\n"
    )


def test_json_says_the_same_with_times_in_utc():
    said = json.loads(json.dumps(report(check("lost", 1, "why")).to_json()))
    assert (said["clean"], said["verdict"]) == (False, "differences: 1 lost")
    assert said["checks"][0]["samples"] == [{"sentence": "why"}]
    assert said["expected"]["partitions"][0]["first_timestamp"] == "2023-11-14T22:13:20.000+00:00"
    assert said["actual"]["timeline"][1] == {"time": "2023-11-14T22:14:20.000+00:00", "records": 500}


def test_the_page_stands_alone_and_shows_records_as_text():
    evil = '"<script>alert(1)</script>" stands there'
    html = page(report(check("unexpected", 1, evil), check("gap", 3, allowed=True)))
    tree = ElementTree.fromstring(html.removeprefix("<!doctype html>\n"))
    assert {name for element in tree.iter() for name in element.attrib} & {"src", "href"} == set()
    assert "<script" not in html
    assert [item.text for item in tree.iter("li")] == [evil]
    assert "differences: 1 unexpected" in [paragraph.text for paragraph in tree.iter("p")]
    assert html.count("<svg") == 3
    assert page(report()).count("<svg") == 2


A0, B0, B1 = Place("a-0", 7), Place("b-0", 1000), Place("b-1", 4)


@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (Difference("lost", 1, "k", A0), '"k" is missing (expected: offset 7 of a-0)'),
        (Difference("lost", 3, "k"), '"k" is missing 3 times'),
        (
            Difference("duplicate", 1, "k", None, B0, B1),
            '"k" stands once too often, at offset 1,000 of b-0 and again at offset 4 of b-1',
        ),
        (Difference("duplicate", 2, "k"), '"k" stands 2 times too often'),
        (
            Difference("unexpected", 2, "k", None, B1),
            '"k" stands 2 times, first at offset 4 of b-1, and was not expected',
        ),
        (Difference("unexpected", 1, "k"), '"k" stands there, and was not expected'),
        (
            Difference("reordered", 1, "k", None, B1, None, Place("b-1", 9), "j"),
            '"k" at offset 4 of b-1 stands before "j" at offset 9 of b-1, which it should follow',
        ),
        (
            Difference("withdrawn", 1, "k", None, B1),
            '"k" stands at offset 4 of b-1, though it was refused or aborted',
        ),
        (Difference("changed", 1, "k", None, B1), '"k" at offset 4 of b-1 is not as expected'),
    ],
)
def test_each_difference_is_told_in_a_sentence(difference, sentence):
    assert difference.sentence == sentence
    assert difference.to_json()["sentence"] == sentence


def test_gaps_are_told_by_their_offsets():
    assert gap_text(Gap("a-0", 7, 8)) == "a-0 has no record at offset 7"
    assert gap_text(Gap("a-0", 7, 1008)) == "a-0 has no records from offset 7 to 1,007"


@pytest.mark.parametrize(("span_s", "step_s"), [(0, 1), (58, 1), (60, 2), (3600, 120), (86_400 * 365, 604_800)])
def test_a_timeline_has_few_points(span_s, step_s):
    figures = FIGURES._replace(first_timestamp=1_000, last_timestamp=1_000 + span_s * 1000)
    assert (
        choose_step_s([figures, FIGURES._replace(first_timestamp=None, last_timestamp=None)], points_max=60) == step_s
    )


def test_it_names_what_was_compared():
    pairs = (("by", "key", "order_id"), ("compare", "value", "value"), ("order by", "key", ""))
    found = report(check("lost", 0), compared=pairs)
    assert found.text().splitlines()[6:9] == ["by        key = order_id", "compare   value", "order by  key"]
    assert found.to_json()["compared"][0] == {"as": "by", "expected": "key", "actual": "order_id"}
