"""The console's page of pipelines: what runs tell, and what no run could tell."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tailrace.real.runs.folder import RunFile
from tailrace.real.runs.status import RunStatus, State
from tailrace.testing import Broker
from tests.parts import need_node_clients

from .conftest import EVIL, console
from .test_doors import ask
from .test_tier import cells

NOTHING = "\N{EN DASH}"

RUNS = (
    ("alive", State.RUNNING, ""),
    ("broken", State.FAILED, f"a record cannot be read: {EVIL}"),
    ("killed", State.RUNNING, ""),
)


def write_runs(folder: Path) -> None:
    for name, state, problem in RUNS:
        file = RunFile(folder, name, "/cp")
        told = RunStatus(
            name, "r", state, "/cp", "/p.toml", "topic a -> b", "here", 7, "", 1.0, time.time(), problem, lag=12, rows=5
        )
        with file.hold():
            file.write(told._replace(lag_seconds=90.0, last_batch=3, last_batch_at=2.0))


def test_what_runs_tell_and_what_they_could_not(broker: Broker, browser: Browser, tmp_path: Path):
    write_runs(tmp_path)
    with (
        RunFile(tmp_path, "alive", "/cp").hold(),
        console("--bootstrap", broker.bootstrap, "--pipelines", str(tmp_path)) as address,
    ):
        answer, page = ask(address, "/pipelines")
        assert answer.status == 200
        order = [page.index(f"<strong>{name}<") for name in ("broken", "killed", "alive")]
        assert order == sorted(order), "what is wrong comes first"
        assert cells(page, "alive")[1:6] == ["● running", NOTHING, "12", "1.5 min", "5"]
        assert cells(page, "killed")[1:5] == [
            "✕ died",
            "It ended without a word: killed, or it could not write.",
            NOTHING,
            NOTHING,
        ]
        assert EVIL not in page
        shown = browser.new_page()
        shown.goto(f"{address}/pipelines")
        assert shown.get_by_role("row").count() == 1 + len(RUNS)
        assert shown.get_by_role("link", name="Pipelines").get_attribute("aria-current") == "page"
        shown.close()
    with console("--bootstrap", broker.bootstrap) as address:
        assert "--pipelines DIR" in ask(address, "/pipelines")[1]


@pytest.mark.long
def test_it_is_open_to_everyone(broker: Broker, browser: Browser, tmp_path: Path):
    write_runs(tmp_path)
    shown = browser.new_page()
    with console("--bootstrap", broker.bootstrap, "--pipelines", str(tmp_path)) as address:
        shown.goto(f"{address}/pipelines")
        axe = (need_node_clients() / "node_modules" / "axe-core" / "axe.min.js").read_text()
        for color in ("light", "dark"):
            shown.emulate_media(color_scheme=color)
            broken = shown.evaluate(f"(async () => {{ {axe}; return (await axe.run()).violations; }})()")
            assert [(color, each["id"], each["nodes"][0]["html"]) for each in broken] == []
        shown.set_viewport_size({"width": 375, "height": 700})
        assert shown.evaluate("document.documentElement.scrollWidth") <= 376
    shown.close()
