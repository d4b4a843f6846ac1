"""docs/benchmarks.md from figures that are made up here: what it says of them must be true."""

import copy

import pytest

from bench.versus.page import make_page
from bench.versus.results import judge
from bench.versus.summary import fill, summary_text
from bench.versus.warmth import WarmUp

REMARKS = {"reasons": {"produce-*-lz4": "the client compresses"}, "knees": {"partitions": "At 1,000 it bends."}}


def row(section, unit, *, lower_is_better=False, title="a row", cold=False, **figures):
    """figures: of each rival, one value a round, or such by the figure's name."""
    taken = [
        {"figure": figure, "rival": rival, "round": number, "value": value, "load": 0.1}
        for rival, found in figures.items()
        for figure, values in (found if isinstance(found, dict) else {"": found}).items()
        for number, value in enumerate(values, 1)
    ]
    names = {"ours": "Tailrace", "base": "Apache Kafka", "other": "Redis streams"}
    return {
        "title": title,
        "section": section,
        "unit": unit,
        "lower_is_better": lower_is_better,
        "note": "",
        "commit": "abc1234",
        "date": "2026-01-31T00:00:00+00:00",
        "seconds": 2.0,
        "rounds": 3,
        "taken": [each | {"rival": names[each["rival"]]} for each in taken],
        "missing": {},
        "cold": cold,
        "python": "CPython 3.11.2, built with PGO and LTO",
        "rule": WarmUp()._asdict(),
        "warm_up": {},
        "again": {},
        "invalid": [],
        "took_s": 60.0,
    }


def curve(*costs, is_flat=True):
    pieces = [[2.0 * number, cost, 0.0] for number, cost in enumerate(costs, 1)]
    return {"figure": "broker CPU us", "is_flat": is_flat, "pieces": pieces}


RESULTS = {
    "machine": {"processor": "a small one", "cores": 2},
    "python": {"implementation": "CPython", "version": "3.11.2", "pgo": True, "lto": False},
    "rivals": {"Tailrace": "with its defaults"},
    "rows": {
        "produce-rf1-base": row("Produce", "MB/s", title="base", ours=[900, 1_000, 1_100], base=[480, 500, 510]),
        "produce-rf1-lz4": row("Produce", "MB/s", title="lz4", ours=[70, 70, 71], base=[100, 100, 100]),
        "produce-rf1-zstd": row("Produce", "MB/s", title="zstd", ours=[60, 60, 61], base=[100, 100, 100]),
        "produce-rf1-100B": row("Produce", "MB/s", title="100 B", ours=[90, 95, 101], base=[99, 100, 100]),
        "produce-rf3-lz4": row("Produce", "MB/s", title="rf=3, lz4", ours=[150], base=[100]),
        "produce-rf3-acks-1": row("Produce", "MB/s", title="rf=3, acks 1", ours=[150], base=[100]),
        "ack-rf1-20k": row(
            "Latency",
            "ms",
            title="acknowledged",
            lower_is_better=True,
            ours={"p50": [1.0], "p99": [2.0], "broker CPU s/GB": [3.0]},
            base={"p50": [1.0], "p99": [5.0], "broker CPU s/GB": [6.0]},
        ),
    },
}
GROWTH = {
    "machine": {},
    "dimensions": {
        "partitions": {
            "title": "Partitions of one topic",
            "over": "partitions",
            "charts": ["MB/s"],
            "commit": "abc1234",
            "python": "CPython 3.11.2",
            "date": "2026-01-31T00:00:00+00:00",
            "load": 0.25,
            "points": [
                {"x": 1, "figures": {"produce MB/s": 900.0}},
                {"x": 1_000, "figures": {"produce MB/s": 300.0, "memory of each KB": 10.0}},
            ],
        }
    },
}


@pytest.fixture(scope="module")
def page():
    return make_page(RESULTS, REMARKS, GROWTH)


def test_more_and_less_are_both_told_as_how_far_ahead(page):
    text, _ = page
    assert "| base | MB/s ↑ | **1,000** (900 - 1,100) | 500 (480 - 510) | 2.00x |" in text
    assert "| acknowledged, p99 | ms ↓ | **2.00** | 5.00 | 2.50x |" in text
    assert "| acknowledged | 3.00 / 6.00 (2.00x) |" in text


def test_ranges_that_overlap_show_no_difference(page):
    assert "| ~0.95x |" in page[0]


def test_losses_have_their_reasons_or_are_named(page):
    losses = page[0].partition("## Where we lose")[2].partition("\n## ")[0]
    assert "- 0.70x, `produce-rf1-lz4` (Produce: lz4): the client compresses" in losses
    assert "- 0.60x, `produce-rf1-zstd` (Produce: zstd): **not explained yet**" in losses
    assert "- ~0.95x, `produce-rf1-100B` (Produce: 100 B): the ranges overlap" in losses
    assert "Below 0.8x and not explained: produce-rf1-zstd." in losses
    assert "produce-rf1-base" not in losses


def test_goals_that_are_missed_by_rows_ahead_have_their_reasons_too(page):
    missed = page[0].partition("## Where we are ahead, and wanted more")[2].partition("\n## ")[0]
    assert missed.strip() == (
        "- 1.50x, `produce-rf3-lz4` (produce, three replicas, acks=all: 2x): the client compresses"
    )


def test_goals_are_counted(page):
    assert "| produce and consume: 1x | 6 | 0.60x (produce-rf1-zstd) | 1.50x | 3 of 6 |" in page[0]
    assert "| produce, three replicas, acks=all: 2x | 1 | 1.50x (produce-rf3-lz4) | 1.50x | 0 of 1 |" in page[0]
    assert "| p99 at 20,000 messages a second: 1/2 of the time | 1 | 2.50x (ack-rf1-20k) | 2.50x | yes |" in page[0]
    assert "| start: 1/5 of the time | none taken | | | |" in page[0]


def test_growth_has_its_table_chart_and_knee(page):
    text, pictures = page
    assert "| 1k | 300 | 10.0 |" in text
    assert "At 1,000 it bends." in text
    assert "growth-partitions-mb-s" in pictures


def test_every_picture_is_shown_and_every_shown_one_is_there(page):
    text, pictures = page
    shown = [part.partition(".svg)")[0] for part in text.split("(benchmarks/")[1:]]
    assert sorted(shown) == sorted(pictures)
    assert all(picture.startswith("<svg ") and picture.endswith("</svg>\n") for picture in pictures.values())


def test_what_was_not_taken_is_told_once_with_its_reason():
    results = copy.deepcopy(RESULTS)
    for name in ("produce-rf1-base", "produce-rf1-lz4"):
        results["rows"][name]["missing"] = {"Redis streams": "there is no redis-server on PATH"}
    text, _ = make_page(results, REMARKS, None)
    told = "- Redis streams is not in `produce-rf1-base`, `produce-rf1-lz4`: there is no redis-server on PATH"
    assert told in text.splitlines()


def test_a_row_without_the_rival_has_no_ratio():
    results = copy.deepcopy(RESULTS)
    results["rows"]["alone"] = row("Instead of Kafka", "MB/s", title="alone", ours=[5.0], other=[4.0])
    text, _ = make_page(results, REMARKS, None)
    assert "| alone | MB/s ↑ | **5.00** | 4.00 |  |" in text


def test_a_row_that_failed_everywhere_does_not_break_the_page():
    results = copy.deepcopy(RESULTS)
    results["rows"]["failed"] = row("Failover", "s", title="failed") | {"missing": {"Tailrace": "it was slow"}}
    text, _ = make_page(results, REMARKS, None)
    assert "- Tailrace is not in `failed`: it was slow" in text.splitlines()


def with_row(name, made):
    results = copy.deepcopy(RESULTS)
    results["rows"][name] = made | {"invalid": judge(made)}
    return results


def test_the_python_and_the_time_are_named(page):
    assert "- Python of Tailrace and of the clients: CPython 3.11.2, built with PGO and LTO." in page[0].splitlines()
    assert "- Rounds: 3 x 2 s; 7 minutes for 7 rows." in page[0].splitlines()


def test_brokers_that_just_started_have_figures_and_no_ratio():
    made = row("Just started", "MB/s", title="produce, just started", cold=True, ours=[600.0], base=[20.0])
    text, _ = make_page(with_row("produce-rf1-just-started", made), REMARKS, None)
    assert "| produce, just started | MB/s ↑ | **600** | 20.0 |  |" in text
    assert "30.0x" not in text
    assert "produce and consume: 1x | 6 |" in text


def test_a_row_whose_rival_was_not_warm_has_its_reason_and_no_figures():
    made = row("Requests", "requests/s", title="not warm", ours=[4444.0], base=[1.0])
    made["warm_up"] = {"Tailrace": curve(*[5.0] * 6), "Apache Kafka": curve(9, 8, 7, 6, 5, 4, is_flat=False)}
    text, pictures = make_page(with_row("requests-cold", made), REMARKS, None)
    told = "- `requests-cold`: Apache Kafka was not warm: its broker CPU us was not flat after 12 s."
    assert told in text.partition("## Not valid")[2].partition("\n## ")[0].splitlines()
    assert "4,444" not in text
    assert not any("4,444" in picture for picture in pictures.values())


def test_a_row_that_still_fell_when_it_counted_is_not_valid():
    rounds = {"": [1.0] * 3, "broker CPU us": [4.0] * 3}
    made = row("Requests", "requests/s", ours=rounds, base=rounds)
    made["warm_up"] = {"Tailrace": curve(*[4.0] * 6), "Apache Kafka": curve(*[5.0] * 6)}
    assert judge(made) == ["Apache Kafka was not warm: its broker CPU us still fell when it counted"]


def test_a_row_beside_other_work_is_not_valid():
    made = row("Requests", "requests/s", ours=[1.0] * 3, base=[1.0] * 3)
    made["taken"] = [each | {"load": 0.9} for each in made["taken"]]
    assert judge(made) == ["other programs kept 0.9 cores busy"]


def again(ours, base, **more):
    made = row("Requests", "requests/s", ours=ours, base=base)
    return {name: made[name] for name in ("taken", "missing", "warm_up", "took_s")} | more


def test_a_row_that_is_another_alone_is_not_valid():
    made = row("Requests", "requests/s", title="by company", ours=[200.0], base=[100.0])
    made["again"] = {"alone": again([200.0], [150.0])}
    text, _ = make_page(with_row("requests-by-company", made), REMARKS, None)
    assert "- `requests-by-company`: the ratio is 2.00x, and alone 1.33x." in text
    assert "| `requests-by-company` | 2.00x | 1.33x | alone | **no** |" in text
    assert "| by company |" not in text


def test_a_row_that_is_the_same_alone_is_valid():
    made = row("Requests", "requests/s", title="steady", ours=[200.0], base=[100.0])
    made["again"] = {"alone": again([190.0], [105.0])}
    text, _ = make_page(with_row("requests-steady", made), REMARKS, None)
    assert "| `requests-steady` | 2.00x | 1.81x | alone | yes |" in text
    assert "## Not valid" not in text


def test_who_was_not_warm_when_taken_again_says_nothing():
    made = row("Requests", "requests/s", ours=[200.0], base=[100.0])
    cold = {"Apache Kafka": curve(9, 8, 7, 6, 5, 4, is_flat=False)}
    made["again"] = {"alone": again([200.0], [20.0], warm_up=cold)}
    assert judge(made) == []


def test_how_warm_they_were_is_shown_with_the_time_that_it_took():
    made = row("Requests", "requests/s", ours=[200.0], base=[100.0])
    made["warm_up"] = {"Tailrace": curve(*[5.0] * 6), "Apache Kafka": curve(90, 40, 20, 11, 10, 10)}
    text, pictures = make_page(with_row("requests-warmed", made), REMARKS, None)
    assert "| `requests-warmed` | us | 12 s: 5.00, 5.00 5.00 5.00 | 12 s: 90.0, 11.0 10.0 10.0 | 60 |" in text
    assert "warm-up" in pictures


def test_without_rows_the_page_is_about_growth_alone():
    text, _ = make_page({"machine": {}, "python": {}, "rivals": {}, "rows": {}}, REMARKS, GROWTH)
    assert "nothing has\nbeen taken" in text
    assert "At 1,000 it bends." in text


def test_the_readme_has_ranges_of_what_is_valid_and_warm():
    cold = row("Just started", "MB/s", cold=True, ours=[600.0], base=[1.0])
    results = with_row("produce-rf1-just-started", cold)
    results["rows"]["produce-rf1-lz4"]["invalid"] = ["it was not warm"]
    text = " ".join(summary_text(results).split())
    assert "CPython 3.11.2, built with PGO and without LTO" in text
    assert "0.6 to 2.0 times its throughput of producing with one replica, 1.5 times with three" in text
    assert "0.4 of its p99 at 20,000 messages a second" in text
    assert "It is behind in 1 of 6 rows, the furthest in `produce-rf1-zstd` (0.60x)." in text
    assert "600" not in text


def test_the_readme_without_rows_claims_nothing():
    assert "times" not in summary_text({"machine": {}, "python": {}, "rivals": {}, "rows": {}})


def test_only_what_is_between_the_marks_is_filled_in():
    begin, end = "<!-- bench.versus.page writes this: begin -->", "<!-- end -->"
    filled = fill(f"before\n{begin}\nold\n{end}\nafter\n", "new")
    assert filled == f"before\n{begin}\nnew\n{end}\nafter\n"
    assert fill(filled, "new") == filled
