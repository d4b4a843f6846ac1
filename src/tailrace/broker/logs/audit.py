"""The audit log `tailrace.audit`: each request that changes something for others, with its answer, in one line (INFO).

    who      principal and client id
    where    the host that it came from, and the listener
    what     the API, and the request without what has its default
    result   NONE, or the codes of all that was refused, as often as they stand in the answer

The broker that the client has asked writes it, not the controller that decides for it. Bytes are never written, nor
values of settings that are secret or unknown: so no password, salt or token is. A second has at most
`audit.log.max.lines.per.second` lines, and the last `audit.log.kept.lines` are kept for DescribeAudit.
`columns.AUDITED` says which APIs; the level of the logger turns it off (WARN).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tailrace.broker.logs.gate import Gate
from tailrace.broker.logs.trail import AuditLine
from tailrace.broker.serving.measuring import errors_of
from tailrace.model import events
from tailrace.model.config import GROUP_SETTINGS, SETTINGS, TOPIC_SETTINGS
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import Uuid, uuid_text
from tailrace.model.listeners import find_setting
from tailrace.wire import apis

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.schema import Message, Struct

_log = events.logger("audit")
_logger = logging.getLogger("tailrace.audit")

_CHARACTERS_MAX = 2000
_HIDDEN = "[hidden]"


class Audit:
    """Steps around a handler: the first and the last ones."""

    def __init__(self, services: Services) -> None:
        self._gate = Gate(services.ports.clock, _log)

    def note_request(self, _services: Services, context: RequestContext, request: Message) -> Message:
        """Before anybody takes something from it."""
        context.audited = _what(request) if _logger.isEnabledFor(logging.INFO) else ""
        return request

    def note_answer(self, services: Services, context: RequestContext, answer: Message) -> Message:
        if context.audited and self._gate.is_open(services.config.audit_log_max_lines_per_second):
            line = AuditLine(
                at_ms=int(services.ports.clock.wall_ms()),
                principal=str(context.principal),
                client_id=context.client_id or "",
                host=context.peer.rpartition(":")[0],
                listener=context.listener.name,
                api=apis.api_name(context.api_key),
                what=context.audited,
                result=_result(answer),
            )
            services.audit_trail.add(line)
            _log.info(
                "administration",
                principal=context.principal,
                client=context.client_id,
                host=line.host,
                listener=line.listener,
                api=line.api,
                what=line.what,
                result=line.result,
            )
        return answer


def _what(request: Struct) -> str:
    text = _render(request)
    return text if len(text) <= _CHARACTERS_MAX else f"{text[:_CHARACTERS_MAX]}... ({len(text)} characters)"


def _render(struct: Struct) -> str:
    return "{" + ", ".join(_parts(struct)) + "}"


def _parts(struct: Struct) -> list[str]:
    parts = []
    for field in struct.fields:
        value = getattr(struct, field.name)
        if value in (field.default, []):
            continue
        if field.name == "value" and hasattr(struct, "name") and not _is_open(struct):
            value = _HIDDEN
        parts.append(f"{field.name}={_text(field.kind, field.item, value)}")
    return parts


def _text(kind: str, item: Any, value: Any) -> str:
    if value is None:
        return "none"
    if kind == "array":
        item_kind = item if isinstance(item, str) else "struct"
        return "[" + ", ".join(_text(item_kind, item, each) for each in value) + "]"
    if kind == "struct":
        return _render(value)
    if kind == "uuid":
        return uuid_text(Uuid(bytes(value)))
    return _HIDDEN if isinstance(value, bytes | bytearray | memoryview) else str(value)


def _is_open(struct: Any) -> bool:
    """Whether a value that belongs to a name may be written: of settings that are known, and not secret."""
    name = struct.name
    found = SETTINGS.get(name) or TOPIC_SETTINGS.get(name) or GROUP_SETTINGS.get(name)
    if found is None and (of_listener := find_setting(name)) is not None:
        found = of_listener[1]
    return name.startswith(events.PREFIX) or (found is not None and not found.sensitive)


def _result(answer: Struct) -> str:
    counts = sorted(errors_of(answer).items())
    return ", ".join(f"{ErrorCode(code).name} x{count}" for code, count in counts) or "NONE"
