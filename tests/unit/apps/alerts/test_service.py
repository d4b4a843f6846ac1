"""From a node's page to a receiver, over real sockets: who is told what, how often, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tailrace.apps.alerts import senders, service
from tailrace.apps.alerts.rules import Rule, RuleFile, Sending
from tailrace.apps.alerts.service import AlertService
from tailrace.apps.alerts.silences import Silence, write_silences
from tailrace.apps.scrape import Scraper

from .listening import Web, listening

RULE = Rule(name="Sick", summary="{value} of {part} are sick", metric="sick", by=("part",), above=0)


@pytest.fixture
def web() -> Iterator[Web]:
    with listening() as found:
        yield found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "_PAUSE_SECONDS", 0.02)


class Elected:
    """Stands in for a group: the test says who is chosen."""

    def __init__(self) -> None:
        self.is_ours = True

    def start(self) -> None: ...

    async def close(self) -> None: ...


def make(
    web: Web, silences_path: Path | None = None, election: Any = None, status_path: Path | None = None, **sending: Any
) -> AlertService:
    options = {"resolve_seconds": 0.0, "timeout_seconds": 20.0, **sending}
    return AlertService(
        RuleFile((RULE,), Sending(**options)),
        Scraper(timeout_seconds=20.0),
        [web.url("")],
        silences_path=None if silences_path is None else str(silences_path),
        status_path=None if status_path is None else str(status_path),
        election=election,
    )


def tell(web: Web, value: int) -> None:
    web.pages["/metrics"] = f'sick{{part="a"}} {value}\n'


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_webhook_and_slack_are_told_once_that_it_begins_and_once_that_it_is_over(web: Web) -> None:
    watch = make(web, webhooks=(web.url("/hook"),), slack=(web.url("/slack"),))
    tell(web, 3)
    for _ in range(4):
        await watch.look()
    tell(web, 0)
    for _ in range(4):
        await watch.look()
    await until(lambda: len(web.at("/hook")) == len(web.at("/slack")) == 2)
    begun, over = web.at("/hook")
    # What receivers written for Alertmanager read; times as Go parses them.
    assert (begun["version"], begun["status"], over["status"]) == ("4", "firing", "resolved")
    assert (
        begun["commonLabels"]
        == begun["alerts"][0]["labels"]
        == {
            "alertname": "Sick",
            "severity": "warning",
            "part": "a",
        }
    )
    assert begun["alerts"][0]["annotations"]["summary"] == "3 of a are sick"
    assert begun["alerts"][0]["fingerprint"] == over["alerts"][0]["fingerprint"]
    assert begun["alerts"][0]["endsAt"].startswith("0001-01-01T")
    started, ended = (datetime.fromisoformat(over["alerts"][0][key]) for key in ("startsAt", "endsAt"))
    assert abs(started.timestamp() - time.time()) < 600
    assert ended >= started
    first, second = web.at("/slack")
    assert first["text"] == "WARNING: Sick: 3 of a are sick"
    assert second["attachments"][0]["title"] == "RESOLVED: Sick"
    await watch._senders.close()


async def test_what_is_refused_is_tried_again_and_given_up_after_three_times(web: Web) -> None:
    watch = make(web, webhooks=(web.url("/hook"),))
    tell(web, 1)
    web.refuses = 2
    await watch.look()
    await until(lambda: len(web.at("/hook")) == 1)
    assert watch._senders.failed == 0
    web.refuses = 3
    tell(web, 0)
    await watch.look()
    await until(lambda: watch._senders.failed == 1)
    assert len(web.at("/hook")) == 1


async def test_one_that_hangs_keeps_nobody_waiting_and_is_bounded(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "_FAREWELL_SECONDS", 0.05)
    monkeypatch.setattr(senders, "_WAITING_MAX", 5)
    watch = make(web, webhooks=(web.url("/slow"),), slack=(web.url("/slack"),))
    slow = watch._senders.receivers[0]
    for number in range(1, 11):
        tell(web, number % 2)
        await watch.look()
        await until(lambda: len(web.at("/slack")) == number)  # noqa: B023 - it is over before the next
    assert web.at("/slow") == []
    assert slow.failed == 10 - 5 - 1, "one is under way, and a queue has an end"
    await watch._senders.close()
    assert slow.failed == 10 - 5
    web.may_answer.set()


async def test_receivers_that_hang_leave_threads_for_all_others(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the loop are few, and whoever reads files or looks names up waits for one of them."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    monkeypatch.setattr(senders, "_FAREWELL_SECONDS", 0.05)
    watch = make(web, webhooks=(web.url("/slow"),) * 3, slack=(web.url("/slack"),))
    tell(web, 1)
    await watch.look()
    await until(lambda: len(web.at("/slack")) == 1)
    async with asyncio.timeout(10):
        assert await asyncio.to_thread(str, 1) == "1"
    await watch._senders.close()
    web.may_answer.set()


async def test_a_command_gets_the_document_and_its_failure_is_counted(web: Web, tmp_path: Path) -> None:
    told = tmp_path / "told"
    python = f"{sys.executable} -c"
    watch = make(
        web,
        commands=(
            f"""{python} 'import sys; open("{told}", "a").write(sys.stdin.read() + chr(10))'""",
            f"{python} 'raise SystemExit(3)'",
        ),
    )
    tell(web, 2)
    await watch.look()
    await until(lambda: told.exists() and told.read_text().endswith("\n") and watch._senders.failed == 1)
    assert json.loads(told.read_text())["alerts"][0]["annotations"]["summary"] == "2 of a are sick"
    await watch._senders.close()


async def test_a_silence_holds_back_what_begins_and_tells_what_still_holds_then(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "silences.json"
    watch = make(web, path, webhooks=(web.url("/hook"),), repeat_seconds=0.0)
    silence = Silence("Sick", {"part": "a"}, time.time() + 3600, "known")
    write_silences(str(path), [silence])
    tell(web, 1)
    assert [each for _ in range(3) for each in await watch.look()] == []
    tell(web, 0)
    assert await watch.look() == [], "nobody was told that it had begun"
    tell(web, 1)
    await watch.look()
    write_silences(str(path), [])
    assert [each.is_firing for each in await watch.look()] == [True]
    write_silences(str(path), [silence])
    assert await watch.look() == [], "it is not repeated in a silence"
    tell(web, 0)
    assert [each.is_firing for each in await watch.look()] == [False], "who was told of it is told of its end"
    await watch._senders.close()


async def test_another_label_or_rule_is_not_silenced(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "silences.json"
    later = time.time() + 3600
    write_silences(str(path), [Silence("Sick", {"part": "b"}, later, ""), Silence("Other", {}, later, "")])
    watch = make(web, path)
    tell(web, 1)
    assert len(await watch.look()) == 1
    path.write_text("{")  # What cannot be read silences nothing.
    tell(web, 0)
    assert len(await watch.look()) == 1


async def test_who_is_chosen_later_tells_what_holds_and_what_was_over_meanwhile(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    election = Elected()
    election.is_ours = False
    watch = make(web, election=election)
    tell(web, 1)
    assert await watch.look() == []
    election.is_ours = True
    assert [each.is_firing for each in await watch.look()] == [True]
    assert await watch.look() == [], "once"
    election.is_ours = False
    await watch.look()
    tell(web, 0)
    assert await watch.look() == []
    election.is_ours = True
    assert [each.is_firing for each in await watch.look()] == [False], "the one before may have died just then"
    assert await watch.look() == []
    election.is_ours = False
    for value in (1, 0):
        tell(web, value)
        await watch.look()
    monkeypatch.setattr(service, "_HANDOVER_SECONDS", 0.0)
    election.is_ours = True
    assert await watch.look() == [], "long ago"


async def test_who_is_chosen_later_tells_no_end_of_what_was_silenced(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "silences.json"
    write_silences(str(path), [Silence("Sick", {}, time.time() + 3600, "")])
    election = Elected()
    election.is_ours = False
    watch = make(web, path, election=election)
    tell(web, 1)
    await watch.look()
    tell(web, 0)
    await watch.look()
    tell(web, 1)
    await watch.look()
    election.is_ours = True
    assert await watch.look() == []
    tell(web, 0)
    assert await watch.look() == []


async def test_a_process_that_is_killed_in_a_delivery_is_followed_by_one_that_tells(web: Web, tmp_path: Path) -> None:
    """Twice is better than never: that it holds, and that it is over."""
    status = tmp_path / "status.json"
    for value in (1, 0):
        tell(web, value)
        killed = make(web, status_path=status, webhooks=(web.url("/slow"),))
        await killed.look()
        await asyncio.sleep(0.1)  # It has the alert, and has not answered.
        for receiver in killed._senders.receivers:
            assert receiver._task is not None
            receiver._task.cancel()
        following = make(web, status_path=status, webhooks=(web.url("/hook"),))
        assert [each.is_firing for each in await following.look()] == [bool(value)]
        await following._senders.close()
    assert web.told("/hook") == [("Sick", "firing"), ("Sick", "resolved")]
    first, last = (document["alerts"][0] for document in web.at("/hook"))
    assert first["startsAt"] == last["startsAt"]
    web.may_answer.set()


async def test_what_is_over_while_nobody_watches_is_told_by_the_next(web: Web, tmp_path: Path) -> None:
    status = tmp_path / "status.json"
    tell(web, 1)
    await make(web, status_path=status).look()
    tell(web, 0)
    assert [each.is_firing for each in await make(web, status_path=status).look()] == [False]
    for text in ("{", '{"alerts": [{}], "ended": []}', '{"alerts": 1, "ended": []}'):
        status.write_text(text)
        tell(web, 1)
        assert [each.is_firing for each in await make(web, status_path=status).look()] == [True]


async def test_one_that_follows_tells_nothing_that_was_never_told(web: Web, tmp_path: Path) -> None:
    """What was silenced, and what did not hold for long enough."""
    status, silences = tmp_path / "status.json", tmp_path / "silences.json"
    write_silences(str(silences), [Silence("Sick", {}, time.time() + 3600, "")])
    tell(web, 1)
    await make(web, silences, status_path=status).look()
    tell(web, 0)
    assert await make(web, silences, status_path=status).look() == []
