"""Who is told: webhooks (one JSON document), Slack and what takes its form, and commands (the document on stdin).

Each is tried a few times. What nobody took is counted and logged, and told again when the alert is repeated. Addresses
may hold secrets: logs show their hosts alone.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from tailrace.apps.alerts.engine import Notice
from tailrace.apps.alerts.rules import Sending
from tailrace.model import events

_log = events.logger("alerts")

_TRIES = 3
_PAUSE_SECONDS = 1.0
_COLOURS = {"critical": "#b71c1c", "warning": "#f9a825"}
_OVER = "#2e7d32"


class Senders:
    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self.failed = 0

    async def send(self, notices: Sequence[Notice]) -> None:
        if not notices:
            return
        document = webhook_document(notices)
        tasks = [self._post(url, document) for url in self._sending.webhooks]
        tasks += [self._post(url, slack_document(notices)) for url in self._sending.slack]
        tasks += [self._run(command, document) for command in self._sending.commands]
        await asyncio.gather(*tasks)

    async def _post(self, url: str, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()

        def post() -> None:
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(url, body, headers)  # noqa: S310 - the operator names it
            with urllib.request.urlopen(request, timeout=self._sending.timeout_seconds):  # noqa: S310
                pass

        await self._try(urlsplit(url).netloc.rpartition("@")[2], lambda: asyncio.to_thread(post))

    async def _run(self, command: str, document: dict[str, Any]) -> None:
        async def run() -> None:
            process = await asyncio.create_subprocess_exec(*shlex.split(command), stdin=asyncio.subprocess.PIPE)
            try:
                async with asyncio.timeout(self._sending.timeout_seconds):
                    await process.communicate(json.dumps(document).encode())
            except TimeoutError:
                process.kill()
                await process.wait()
                raise
            if process.returncode:
                raise OSError(f"it ended with {process.returncode}")

        await self._try(shlex.split(command)[0], run)

    async def _try(self, whom: str, send: Any) -> None:
        for number in range(_TRIES):
            try:
                await send()
                return
            except (OSError, HTTPException, TimeoutError, ValueError) as error:
                cause = error
            await asyncio.sleep(_PAUSE_SECONDS * number)
        self.failed += 1
        _log.warning("nobody took an alert", whom=whom, cause=cause)


def webhook_document(notices: Sequence[Notice]) -> dict[str, Any]:
    """As Prometheus' Alertmanager sends it, so that what takes its webhooks takes these."""
    alerts = [_facts(each) for each in notices]
    is_firing = any(each.is_firing for each in notices)
    return {"version": "4", "receiver": "tailrace", "status": "firing" if is_firing else "resolved", "alerts": alerts}


def _facts(notice: Notice) -> dict[str, Any]:
    alert, rule = notice.alert, notice.alert.rule
    return {
        "status": "firing" if notice.is_firing else "resolved",
        "labels": {"alertname": rule.name, "severity": rule.severity, **dict(sorted(alert.labels))},
        "annotations": {"summary": alert.summary, "runbook_url": rule.runbook, "value": f"{alert.value:g}"},
        "startsAt": alert.fired_at,
        "endsAt": None if notice.is_firing else alert.held_at,
        "fingerprint": alert.key,
    }


def slack_document(notices: Sequence[Notice]) -> dict[str, Any]:
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
