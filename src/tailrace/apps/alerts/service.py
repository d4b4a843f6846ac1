"""The process `tailrace alerts run`: reads all nodes, lets the engine decide, and tells whoever is to be told.

Every alert also is a line in its own log. A process that is not the chosen one of several watches all the same, and is
silent: should it be chosen, it tells of what then holds, and of what was over since the one before it may have died.
With a `status_path` it keeps there what holds now, chosen or not, and goes on from there when it is started again:
whoever was told of an alert is told of its end, wherever a process was killed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from tailrace.apps.alerts.election import Election
from tailrace.apps.alerts.engine import Alert, Engine, Notice
from tailrace.apps.alerts.rules import RuleFile
from tailrace.apps.alerts.senders import Senders
from tailrace.apps.alerts.silences import Silence, SilencesError, read_silences
from tailrace.apps.alerts.status import SHOWN, read_past, sorted_alerts, status_of, write_status
from tailrace.apps.scrape import Moment, Reading, Scraper, TargetsError, now, read_targets
from tailrace.model import events

_log = events.logger("alerts")

# Longer than it takes a group to see that the chosen one is dead and to choose another, and than it takes to deliver.
_HANDOVER_SECONDS = 60.0


class AlertService:
    def __init__(
        self,
        rule_file: RuleFile,
        scraper: Scraper,
        targets: Sequence[str],
        *,
        silences_path: str | None = None,
        status_path: str | None = None,
        election: Election | None = None,
    ) -> None:
        self.engine = Engine(rule_file.rules, rule_file.sending)
        self._metrics = self.engine.metrics | SHOWN
        self._senders = Senders(rule_file.sending)
        self._scraper = scraper
        self._targets = targets
        self._silences_path = silences_path
        self._status_path = status_path
        self._election = election
        self._interval_seconds = rule_file.sending.interval_seconds
        self._problem = ""
        self._unheard: list[tuple[float, Notice]] = []  # What was over while another process was to tell.
        self._ended: list[tuple[float, Alert]] = []  # What was told to be over, and may be on its way.
        if status_path is not None:
            began = now()
            past = read_past(status_path, rule_file.rules, began)
            self.engine.recall(past.known)
            self._unheard = [(began.steady, Notice(each, is_firing=False)) for each in past.ended]

    async def run(self) -> None:
        """Until it is cancelled."""
        if self._election is not None:
            self._election.start()
        try:
            while True:
                began = time.monotonic()
                await self.look()
                await asyncio.sleep(max(0.0, self._interval_seconds - (time.monotonic() - began)))
        finally:
            if self._election is not None:
                await self._election.close()
            await self._senders.close()

    async def look(self) -> list[Notice]:
        """One reading of all nodes; gives what was told."""
        try:
            targets = read_targets(self._targets)
        except TargetsError as error:
            self._tell_problem(str(error))
            await self._write_status(now(), [])
            return []
        self._tell_problem("")
        readings = await self._scraper.read(targets, self._metrics)
        at = now()
        notices = self._audible(self.engine.step(at, readings), at)
        self._ended = [each for each in self._ended if at.steady - each[0] < _HANDOVER_SECONDS]
        self._ended += [(at.steady, notice.alert) for notice in notices if not notice.is_firing]
        await self._write_status(at, readings)
        for notice in notices:
            alert, rule = notice.alert, notice.alert.rule
            tell = _log.warning if notice.is_firing else _log.info
            tell(
                "alert" if notice.is_firing else "alert is over",
                name=rule.name,
                severity=rule.severity,
                summary=alert.summary,
                runbook=rule.runbook,
            )
        self._senders.send(notices)
        return notices

    async def _write_status(self, at: Moment, readings: Sequence[Reading]) -> None:
        if self._status_path is None:
            return
        status = status_of(
            at=at.wall,
            interval_seconds=self._interval_seconds,
            problem=self._problem,
            rules=self.engine.rules,
            alerts=sorted_alerts(self.engine.alerts.values()),
            ended=[alert for _, alert in self._ended],
            readings=readings,
            is_silenced=self._silencing(at.wall),
        )
        try:
            await asyncio.to_thread(write_status, self._status_path, status)
        except OSError as error:
            self._tell_problem(f"cannot write {self._status_path}: {error.strerror}")

    def _audible(self, notices: Sequence[Notice], at: Moment) -> list[Notice]:
        is_silenced = self._silencing(at.wall)
        self._unheard = [each for each in self._unheard if at.steady - each[0] < _HANDOVER_SECONDS]
        if self._election is not None and not self._election.is_ours:
            self._unheard += [(at.steady, each) for each in notices if not each.is_firing and each.alert.is_known]
            for alert in self.engine.firing:
                # The other one has told of it, presumably.
                alert.told_at, alert.is_known = None, alert.is_known or not is_silenced(alert)
            return []
        audible = [notice for _, notice in self._unheard]
        self._unheard.clear()
        for notice in notices:
            alert = notice.alert
            if not notice.is_firing:
                if alert.is_known:
                    audible.append(notice)
            elif is_silenced(alert):
                alert.told_at = None  # Told once the silence ends, if it still holds.
            else:
                alert.is_known = True
                audible.append(notice)
        return audible

    def _silencing(self, now: float) -> Callable[[Alert], bool]:
        silences = self._silences()
        return lambda alert: any(each.covers(alert, now) for each in silences)

    def _silences(self) -> list[Silence]:
        if self._silences_path is None:
            return []
        try:
            return read_silences(self._silences_path)
        except SilencesError as error:
            self._tell_problem(str(error))
            return []

    def _tell_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("alerts cannot be judged as they should", cause=problem)
        self._problem = problem
