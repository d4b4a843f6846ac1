"""The audit log `tailrace.authorizer`: who was denied what by which rule (INFO), and who was allowed (DEBUG).

One line has principal, host, operation, resource, API and rule. No client can fill the disk with them: in an interval
(`authorizer.log.interval.ms`) a denial is written once, however often it is repeated, and of different ones at most
`authorizer.log.max.lines`. At the end of the interval one line tells of each that was repeated how often, and one how
many were left out.
"""

from __future__ import annotations

import logging
from asyncio import TimerHandle, get_running_loop
from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.model import events
from tailrace.wire import apis

if TYPE_CHECKING:
    from tailrace.controller.security.authorizer import Decision
    from tailrace.model.acls import Kind, Operation
    from tailrace.model.security import Principal

_log = events.logger("authorizer")
is_verbose = partial(logging.getLogger("tailrace.authorizer").isEnabledFor, logging.DEBUG)

# Principal, host, operation, and the kind and name of a resource.
Question = tuple["Principal", str, "Operation", "Kind", str]


class AuditLog:
    def __init__(self, *, interval_ms: int, lines_max: int) -> None:
        self._interval_ms = interval_ms
        self._lines_max = lines_max
        self._denied: dict[tuple[Question, int], tuple[Decision, int]] = {}  # In this interval; at most `lines_max`.
        self._left_out = 0
        self._timer: TimerHandle | None = None

    def note(self, decision: Decision, question: Question, api_key: int) -> None:
        """What is allowed only if the log `is_verbose`."""
        key = question, api_key
        if decision.is_allowed:
            _log.debug("allowed", **_facts(key, decision))
            return
        if self._timer is None:
            self._timer = get_running_loop().call_later(self._interval_ms / 1000, self._end_interval)
        if key in self._denied:
            self._denied[key] = decision, self._denied[key][1] + 1
        elif len(self._denied) >= self._lines_max:
            self._left_out += 1
        else:
            self._denied[key] = decision, 1
            _log.info("denied", **_facts(key, decision))

    def _end_interval(self) -> None:
        denied, left_out = self._denied, self._left_out
        self._denied, self._left_out, self._timer = {}, 0, None
        for key, (decision, count) in denied.items():
            if count > 1:
                _log.info("denied again", times=count - 1, **_facts(key, decision))
        if left_out:
            _log.info("more was denied than is written", denials=left_out, authorizer_log_max_lines=self._lines_max)


def _facts(key: tuple[Question, int], decision: Decision) -> dict[str, Any]:
    (principal, host, operation, kind, name), api_key = key
    return {
        "principal": principal,
        "host": host,
        "operation": operation.name,
        "resource": f"{kind.name}:{name}",
        "api": apis.api_name(api_key) if api_key >= 0 else "",
        "rule": decision.rule_text,
    }
