"""Charts: what is drawn where, on scales that can be read, with everything escaped."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from tailrace.spark.charts import Bars, Series, bar_chart, line_chart, number_text

SVG = "{http://www.w3.org/2000/svg}"


def parts(picture: str, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(picture).iter(SVG + name))


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in parts(picture, "text")]


def test_a_line_goes_through_its_points_from_left_to_right():
    picture = line_chart("orders", [Series("a", [(0, 0), (30, 100), (60, 50)]), Series("b", [(0, 10)])])
    first, second = parts(picture, "polyline")
    corners = [tuple(map(float, pair.split(","))) for pair in first.attrib["points"].split()]
    assert corners == [(64.0, 260.0), (404.0, 40.0), (744.0, 150.0)]
    assert first.attrib["stroke"] != second.attrib["stroke"]
    assert [tip.text for tip in parts(picture, "title")] == [
        "a 1970-01-01 00:00:00: 0",
        "a 1970-01-01 00:00:30: 100",
        "a 1970-01-01 00:01:00: 50",
        "b 1970-01-01 00:00:00: 10",
    ]
    assert {"orders", "a", "b", "00:00:00", "00:01:00"} <= set(texts(picture))


@pytest.mark.parametrize(
    ("highest", "ticks"),
    [
        (0, ["0", "1"]),
        (1, ["0", "0.5", "1"]),
        (7, ["0", "2", "4", "6", "8"]),
        (100, ["0", "50", "100"]),
        (1234, ["0", "500", "1k", "1.5k"]),
        (2_500_000, ["0", "1M", "2M", "3M"]),
    ],
)
def test_the_scale_goes_from_zero_to_a_round_number(highest, ticks):
    assert [text for text in texts(bar_chart("", ["x"], [Bars("", [highest])])) if text not in ("", "x")] == ticks


def test_bars_stand_side_by_side_and_no_wider_than_their_place():
    picture = bar_chart("records", ["0", "1"], [Bars("expected", [10, 20]), Bars("actual", [10, 0])])
    bars = [each for each in parts(picture, "rect") if each.find(SVG + "title") is not None]
    assert [bar.find(SVG + "title").text for bar in bars] == [
        "expected 0: 10",
        "actual 0: 10",
        "expected 1: 20",
        "actual 1: 0",
    ]
    spans = [(float(bar.attrib["x"]), float(bar.attrib["x"]) + float(bar.attrib["width"])) for bar in bars]
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert [float(bar.attrib["height"]) for bar in bars] == [110.0, 110.0, 220.0, 0.0]


def test_of_many_categories_some_are_labelled():
    picture = bar_chart("", [f"p{index}" for index in range(60)], [Bars("", [1] * 60)])
    assert [text for text in texts(picture) if text.startswith("p")] == [f"p{index}" for index in range(0, 60, 5)]


def test_names_cannot_break_out_of_the_picture():
    picture = line_chart('<b>"&', [Series("</svg>", [(0, 1)])])
    assert "<b>" not in picture
    assert picture.count("</svg>") == 1
    assert {'<b>"&', "</svg>"} <= set(texts(picture))


def test_nothing_to_draw_is_a_picture_too():
    assert parts(line_chart("empty", []), "polyline") == []
    assert parts(bar_chart("empty", [], []), "line")


def test_the_same_numbers_give_the_same_bytes():
    one, other = (line_chart("t", [Series("a", [(1, 1 / 3), (2, 2 / 3)])]) for _ in range(2))
    assert one == other
    assert number_text(1234.5) == "1,234.50"
