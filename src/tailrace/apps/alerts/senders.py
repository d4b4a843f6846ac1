"""Who is told: webhooks (one JSON document), Slack and what takes its form, and commands (the document on stdin).

Each has a queue and a task of its own, so that one that hangs keeps neither the others nor the next reading waiting. A
document is tried a few times. What nobody took is counted and logged, and told again when the alert is repeated.
Addresses may hold secrets: logs show their hosts alone.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from tailrace.apps.alerts.engine import Notice
from tailrace.apps.alerts.rules import Sending
from tailrace.apps.scrape import Moment
from tailrace.apps.threads import in_thread
from tailrace.model import events

_log = events.logger("alerts")

_TRIES = 3
_PAUSE_SECONDS = 1.0
# Of one receiver. One that has not taken so many is not there, and will be told of what then holds.
_WAITING_MAX = 100
# For what is still to be sent when the process ends.
_FAREWELL_SECONDS = 5.0
_COLOURS = {"critical": "#b71c1c", "warning": "#f9a825"}
_OVER = "#2e7d32"
# As Go writes a time that is not known.
_NEVER = "0001-01-01T00:00:00Z"

Document = dict[str, Any]


class Receiver:
    """`deliver` raises where a document was not taken."""

    def __init__(
        self,
        name: str,
        make: Callable[[Sequence[Notice]], Document],
        deliver: Callable[[Document], Awaitable[None]],
    ) -> None:
        self.failed = 0
        self._name = name
        self._make = make
        self._deliver = deliver
        self._waiting: asyncio.Queue[Document] = asyncio.Queue(_WAITING_MAX)
        self._task: asyncio.Task[None] | None = None

    def send(self, notices: Sequence[Notice]) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"alerts to {self._name}")
        try:
            self._waiting.put_nowait(self._make(notices))
        except asyncio.QueueFull:
            self._give_up("too many alerts wait for it")

    async def close(self) -> None:
        if self._task is None:
            return
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._waiting.join()
        except TimeoutError:
            self._give_up("this process ends")
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._try(await self._waiting.get())
            self._waiting.task_done()

    async def _try(self, document: Document) -> None:
        for number in range(_TRIES):
            await asyncio.sleep(_PAUSE_SECONDS * number)
            try:
                await self._deliver(document)
                return
            except (OSError, HTTPException, TimeoutError, ValueError) as error:
                cause = error
        self._give_up(cause)

    def _give_up(self, cause: object) -> None:
        self.failed += 1
        _log.warning("nobody took an alert", whom=self._name, cause=cause)


class Senders:
    def __init__(self, sending: Sending) -> None:
        self._timeout_seconds = sending.timeout_seconds
        self.receivers = [self._web(url, webhook_document) for url in sending.webhooks]
        self.receivers += [self._web(url, slack_document) for url in sending.slack]
        self.receivers += [self._command(shlex.split(command)) for command in sending.commands]

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.receivers)

    def send(self, notices: Sequence[Notice]) -> None:
        if notices:
            for receiver in self.receivers:
                receiver.send(notices)

    async def close(self) -> None:
        """What waits is still sent, if it does not take long."""
        await asyncio.gather(*(each.close() for each in self.receivers))

    def _web(self, url: str, make: Callable[[Sequence[Notice]], Document]) -> Receiver:
        def post(document: Document) -> None:
            headers = {"Content-Type": "application/json"}
            body = json.dumps(document).encode()
            request = urllib.request.Request(url, body, headers)  # noqa: S310 - the operator names it
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_seconds):  # noqa: S310
                    pass
            except HTTPError as error:
                error.close()  # It holds the answer, and with it the socket.
                raise

        return Receiver(urlsplit(url).netloc.rpartition("@")[2], make, lambda document: in_thread(post, document))

    def _command(self, words: Sequence[str]) -> Receiver:
        async def run(document: Document) -> None:
            process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE)
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    await process.communicate(json.dumps(document).encode())
            except TimeoutError:
                process.kill()
                await process.wait()
                raise
            if process.returncode:
                raise OSError(f"it ended with {process.returncode}")

        return Receiver(words[0], webhook_document, run)


def webhook_document(notices: Sequence[Notice]) -> Document:
    """As Prometheus' Alertmanager sends it, so that what takes its webhooks takes these."""
    alerts = [_facts(each) for each in notices]
    is_firing = any(each.is_firing for each in notices)
    return {
        "version": "4",
        "groupKey": "tailrace",
        "truncatedAlerts": 0,
        "status": "firing" if is_firing else "resolved",
        "receiver": "tailrace",
        "groupLabels": {},
        "commonLabels": _common([each["labels"] for each in alerts]),
        "commonAnnotations": _common([each["annotations"] for each in alerts]),
        "externalURL": "",
        "alerts": alerts,
    }


def _facts(notice: Notice) -> Document:
    alert, rule = notice.alert, notice.alert.rule
    return {
        "status": "firing" if notice.is_firing else "resolved",
        "labels": {"alertname": rule.name, "severity": rule.severity, **dict(sorted(alert.labels))},
        "annotations": {"summary": alert.summary, "runbook_url": rule.runbook, "value": f"{alert.value:g}"},
        "startsAt": _NEVER if alert.fired is None else _moment(alert.fired),
        "endsAt": _NEVER if notice.is_firing else _moment(alert.held),
        "generatorURL": "",
        "fingerprint": alert.key,
    }


def _common(tables: Sequence[dict[str, str]]) -> dict[str, str]:
    first, *others = tables
    return {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}


def _moment(at: Moment) -> str:
    """As RFC 3339 has it."""
    return datetime.fromtimestamp(at.wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def slack_document(notices: Sequence[Notice]) -> Document:
    attachments = []
    for notice in notices:
        alert, rule = notice.alert, notice.alert.rule
        word = rule.severity.upper() if notice.is_firing else "RESOLVED"
        attachments.append(
            {
                "color": _COLOURS.get(rule.severity, "#757575") if notice.is_firing else _OVER,
                "title": f"{word}: {rule.name}",
                "text": f"{alert.summary}\nWhat to do: {rule.runbook}",
                "fallback": f"{word}: {rule.name}: {alert.summary}",
            }
        )
    return {"text": "; ".join(str(each["fallback"]) for each in attachments), "attachments": attachments}
