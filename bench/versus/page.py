"""`python -m bench.versus.page`: docs/benchmarks.md and its charts, from results.json, growth.json and remarks.toml;
and the paragraph of README.md that tells of them.

Nothing is measured here and nothing else is read: the same files give the same page, to the byte. Rows that are not
valid have their reasons on it, and no figures.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.charts import figure_text, ratio_chart, row_chart
from bench.growth.page import growth_section
from bench.versus.goals import FLOOR, GOALS
from bench.versus.results import BASE, OURS, Measured, distinct, is_main, read_rows, reason_for
from bench.versus.summary import fill, summary_text
from bench.versus.warm_page import again_section, invalid_section, warm_up_section
from tailrace.spark.charts import Bars

_ROOT = Path(__file__).parents[2]
_RESULTS = Path(__file__).with_name("results.json")
_REMARKS = Path(__file__).with_name("remarks.toml")
_GROWTH = _ROOT / "bench" / "growth" / "growth.json"
_PAGE = _ROOT / "docs" / "benchmarks.md"
_README = _ROOT / "README.md"
_NOTHING: dict[str, Any] = {"machine": {}, "python": {}, "rivals": {}, "rows": {}}
_PICTURES = "benchmarks"

_INTRODUCTION = """\
# Side by side with Apache Kafka

Made by `python -m bench.versus.page` from the figures in `bench/versus/results.json` and `bench/growth/growth.json`.

The same client, the same machine and the same kind of data folder for all; brokers take turns (A B A B ...), and each
figure is the median of its rounds, with the lowest and highest in brackets. A JVM is many times slower before it has
compiled what it runs, and three of them on a small machine take minutes for it, so a row counts when its own work costs
the brokers the same in three windows, and is not valid if that does not come
([how warm they were](#how-warm-they-were)). Before a round that fills gigabytes of page cache, free memory is touched
once: virtual machines give it back to their host, and whoever came next would pay for that. Rows called "just started"
have neither, and no ratio. What a row is to read is synced to the device before, so that nobody reads beside a kernel
that still writes. Client and brokers share the machine's cores.

**The ratio** says how far ahead Tailrace is, whichever direction is good (↑ or ↓): 2.00x is twice the throughput, or
half the time or memory; below 1 Apache Kafka is ahead. Where ranges overlap there is a ~: no difference was shown.
"""

_NO_ROWS = """\
# Benchmarks

Made by `python -m bench.versus.page` from the figures in `bench/growth/growth.json`. Beside Apache Kafka nothing has
been taken by the rules of `bench/versus/warmth.py` yet: `make bench-kafka` does it.
"""

_COMMANDS = """\
## Again, on your machine

```
make bench-kafka                               # all rows, an hour at most; Apache Kafka comes by Maven and needs Java
make bench-kafka VENV=.venv-debian PYTHON=/usr/bin/python3  # with this Python, in an environment of its own
make bench-alone                               # some again, each alone with its brokers: the ratios have to be the same
python -m bench.versus --list                  # their names
python -m bench.versus --only 'produce-rf3-*'  # some of them; the others stay as they were
python -m bench.growth --only partitions       # how cost grows
python -m bench.versus.page                    # this page
make bench                                     # Tailrace alone, ten minutes, no Java
```
"""


def main() -> int:
    options = _parse()
    results = json.loads(options.results.read_text()) if options.results.exists() else _NOTHING
    remarks = tomllib.loads(_REMARKS.read_text())
    growth = json.loads(options.growth.read_text()) if options.growth.exists() else None
    text, pictures = make_page(results, remarks, growth)
    folder = options.page.parent / _PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, picture in pictures.items():
        (folder / f"{name}.svg").write_text(picture)
    options.page.write_text(text)
    options.readme.write_text(fill(options.readme.read_text(), summary_text(results)))
    print(f"{options.page}: {len(results['rows'])} rows, {len(pictures)} charts")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.versus.page", description="Write docs/benchmarks.md.")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="what was measured beside Apache Kafka")
    parser.add_argument("--growth", type=Path, default=_GROWTH, help="what bench.growth has measured")
    parser.add_argument("--page", type=Path, default=_PAGE, help="where to write; charts go into a folder beside it")
    parser.add_argument("--readme", type=Path, default=_README, help="whose paragraph is filled in")
    return parser.parse_args()


def make_page(
    results: dict[str, Any], remarks: dict[str, Any], growth: dict[str, Any] | None
) -> tuple[str, dict[str, str]]:
    """The text, and the charts by name."""
    pictures: dict[str, str] = {}
    parts = _beside(results, remarks["reasons"], pictures) if results["rows"] else [_NO_ROWS]
    if growth is not None:
        text, charts = growth_section(growth, remarks["knees"])
        parts.append(text)
        pictures |= charts
    return "\n".join([*parts, _COMMANDS]), pictures


def _beside(results: dict[str, Any], reasons: dict[str, str], pictures: dict[str, str]) -> list[str]:
    """All that is about the rivals."""
    rows = read_rows(results)
    parts = [_INTRODUCTION, _circumstances(results), *_overview(rows, pictures)]
    parts += [_losses(rows, reasons), _missed(rows, reasons), invalid_section(results["rows"])]
    parts += [
        _section(section, [row for row in rows if row.section == section], results, pictures)
        for section in distinct(row["section"] for row in results["rows"].values())
    ]
    warm_up, charts = warm_up_section(results["rows"])
    pictures |= charts
    return [part for part in (*parts, warm_up, again_section(results["rows"])) if part]


def _circumstances(results: dict[str, Any]) -> str:
    machine, rows = results["machine"], results["rows"].values()
    loads = [taken["load"] for row in rows for taken in row["taken"]]
    commits = distinct(row["commit"] for row in rows)
    days = sorted({row["date"][:10] for row in rows})
    efforts = distinct(f"{row['rounds']} x {row['seconds']:g} s" for row in rows)
    took_s = sum(each["took_s"] for row in rows for each in (row, *row["again"].values()))
    lines = [
        f"- Machine: {', '.join(f'{name} {value}' for name, value in machine.items())}.",
        f"- Commit of Tailrace: {', '.join(commits)}; taken {' to '.join(distinct([days[0], days[-1]]))}.",
        *(f"- Python of Tailrace and of the clients: {told}." for told in distinct(row["python"] for row in rows)),
        f"- Rounds: {', '.join(efforts)}; {took_s / 60:.0f} minutes for {len(rows)} rows.",
    ]
    if loads:
        told = f"{min(loads):.2f} to {max(loads):.2f} in a round, median {sorted(loads)[len(loads) // 2]:.2f}"
        lines.append(f"- Cores that other programs kept busy meanwhile: {told}.")
    lines += [f"- {name}: {description}." for name, description in results.get("rivals", {}).items()]
    return "\n".join(lines) + "\n"


def _overview(rows: list[Measured], pictures: dict[str, str]) -> Iterable[str]:
    ratios = [(row, ratio) for row in rows if row.is_headline and (ratio := row.ratio)]
    if not ratios:
        return
    pictures["ratios"] = ratio_chart(
        f"Tailrace against {BASE}",
        [(f"{row.name} {row.figure}".strip(), ratio) for row, ratio in ratios],
        ahead="Tailrace ahead",
        behind="behind",
    )
    yield f"## At a glance\n\n![how far ahead Tailrace is in each row]({_PICTURES}/ratios.svg)\n"
    lines = ["| goal | rows | least | median | met |", "|---|---|---|---|---|"]
    for goal in GOALS:
        found = sorted((ratio, row.name) for row in rows if goal.covers(row) and (ratio := row.ratio))
        if not found:
            lines.append(f"| {goal.title} | none taken | | | |")
            continue
        met = sum(ratio >= goal.ratio for ratio, _ in found)
        least, median = found[0], found[len(found) // 2][0]
        told = "yes" if met == len(found) else f"{met} of {len(found)}"
        lines.append(f"| {goal.title} | {len(found)} | {_times(least[0])} ({least[1]}) | {_times(median)} | {told} |")
    yield "\n".join(lines) + "\n"


def _losses(rows: list[Measured], reasons: dict[str, str]) -> str:
    behind = sorted((ratio, row) for row in rows if is_main(row.figure) and (ratio := row.ratio) and ratio < 1)
    lines = ["## Where we lose\n"]
    if not behind:
        lines.append(f"In no row is the median of {BASE} better.")
    for _, row in behind:
        reason = reason_for(row.name, reasons)
        if reason is None:
            reason = "the ranges overlap" if row.is_even else "**not explained yet**"
        lines.append(f"- {_ratio(row)}, `{row.name}` ({row.section}: {row.label}): {reason}")
    unexplained = [row.name for ratio, row in behind if ratio < FLOOR and reason_for(row.name, reasons) is None]
    if unexplained:
        lines.append(f"\nBelow {FLOOR:g}x and not explained: {', '.join(distinct(unexplained))}.")
    return "\n".join(lines) + "\n"


def _missed(rows: list[Measured], reasons: dict[str, str]) -> str:
    """Goals that ask for more than to be level, and rows that are ahead, but not by as much."""
    lines = ["## Where we are ahead, and wanted more\n"]
    for goal in GOALS:
        missed = sorted(
            (ratio, row) for row in rows if goal.covers(row) and (ratio := row.ratio) and 1 <= ratio < goal.ratio
        )
        lines += [
            f"- {_ratio(row)}, `{row.name}` ({goal.title}): {reason_for(row.name, reasons) or '**not explained yet**'}"
            for _, row in missed
        ]
    if len(lines) == 1:
        lines.append("Nowhere: whatever is ahead has its goal.")
    return "\n".join(lines) + "\n"


def _section(name: str, rows: list[Measured], results: dict[str, Any], pictures: dict[str, str]) -> str:
    lines = [f"## {name}\n"]
    for unit in distinct(row.unit for row in rows if row.is_headline):
        shown = [row for row in rows if row.is_headline and row.unit == unit]
        slug = _slug(f"{name} {unit}")
        better = "lower is better" if shown[0].lower_is_better else "higher is better"
        pictures[slug] = _chart(f"{name}, {unit} ({better})", shown)
        lines.append(f"![{name}, {unit}, {better}]({_PICTURES}/{slug}.svg)\n")
    if rows:
        lines += [*_table([row for row in rows if is_main(row.figure)]), ""]
    costs = [row for row in rows if not is_main(row.figure)]
    if costs:
        lines += [*_cost_table(costs), ""]
    taken = {row: facts for row, facts in results["rows"].items() if facts["section"] == name}
    lines += [f"{note}\n" for note in distinct(facts["note"] for facts in taken.values()) if note]
    missing = _missing(taken)
    return "\n".join([*lines, *missing]) + ("\n" if missing else "")


def _missing(taken: dict[str, Any]) -> list[str]:
    """Who could not take part, or failed, in which rows, and why."""
    rows: dict[tuple[str, str], list[str]] = {}
    for row, facts in taken.items():
        for rival, reason in facts["missing"].items():
            rows.setdefault((rival, reason), []).append(f"`{row}`")
    return [f"- {rival} is not in {', '.join(names)}: {reason}" for (rival, reason), names in rows.items()]


def _chart(title: str, rows: list[Measured]) -> str:
    rivals = distinct(rival for row in rows for rival in row.by_rival)
    values = {rival: [row.median(rival) for row in rows] for rival in rivals}
    return row_chart(title, [row.label for row in rows], [Bars(rival, values[rival]) for rival in rivals])


def _table(rows: list[Measured]) -> list[str]:
    rivals = distinct(rival for row in rows for rival in row.by_rival)
    lines = [f"| | unit | {' | '.join(rivals)} | ratio |", f"|---|---|{'---|' * len(rivals)}---|"]
    for row in rows:
        cells = [_cell(row, rival) for rival in rivals]
        unit = f"{row.unit} {'↓' if row.lower_is_better else '↑'}"
        lines.append(f"| {row.label} | {unit} | {' | '.join(cells)} | {_ratio(row)} |")
    return lines


def _cost_table(costs: list[Measured]) -> list[str]:
    """One line a row, one column a cost, both rivals in a cell: side by side is how they are read."""
    figures = distinct(cost.figure for cost in costs)
    lines = [
        f"What it took, Tailrace / {BASE} (lower is better):\n",
        f"| | {' | '.join(figures)} |",
        f"|---|{'---|' * len(figures)}",
    ]
    for title in distinct(cost.title for cost in costs):
        found = {cost.figure: cost for cost in costs if cost.title == title}
        cells = [_both(found[figure]) if figure in found else "" for figure in figures]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def _both(cost: Measured) -> str:
    medians = [figure_text(cost.median(rival)) if rival in cost.by_rival else "-" for rival in (OURS, BASE)]
    return f"{' / '.join(medians)} ({_ratio(cost)})" if cost.ratio else " / ".join(medians)


def _cell(row: Measured, rival: str) -> str:
    found = row.by_rival.get(rival)
    if found is None:
        return ""
    median = figure_text(found.median)
    spread = "" if found.low == found.high else f" ({figure_text(found.low)} - {figure_text(found.high)})"
    return f"**{median}**{spread}" if rival == OURS else f"{median}{spread}"


def _ratio(row: Measured) -> str:
    if row.ratio is None:
        return ""
    return ("~" if row.is_even else "") + _times(row.ratio)


def _times(ratio: float) -> str:
    return f"{figure_text(ratio)}x"


def _slug(text: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split())


if __name__ == "__main__":
    sys.exit(main())
