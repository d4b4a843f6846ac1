"""/schemas: schemas by id and guid, and lists of them. An id is what every consumer asks for: its answer is kept as
bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from tailrace.apps.registry import errors
from tailrace.apps.registry.state.names import context_of, context_prefix, parse_subject, qualify
from tailrace.apps.registry.state.parsing import TYPES
from tailrace.apps.registry.state.store import Version
from tailrace.apps.registry.web import http
from tailrace.apps.registry.web.answers import string_answer, version_answer
from tailrace.apps.registry.web.api import Api, Call
from tailrace.model.acls import Operation


class Answers:
    """Bytes of the last answers, as long as the state is the same."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._revision = -1
        self._answers: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def get(self, revision: int, key: tuple[object, ...]) -> bytes | None:
        if revision != self._revision:
            self._revision = revision
            self._answers.clear()
        found = self._answers.get(key)
        if found is not None:
            self._answers.move_to_end(key)
        return found

    def keep(self, key: tuple[object, ...], content: bytes) -> None:
        self._answers[key] = content
        if len(self._answers) > self._size:
            self._answers.popitem(last=False)


def schema_routes(api: Api) -> Sequence[Route]:
    answers = Answers(api.registry.settings.answers_size)

    async def get_by_id(call: Call) -> Response:
        schema_id = http.path_id(call.request)
        version = _find(call, schema_id)
        key = (version.subject, schema_id, str(call.request.query_params))
        revision = call.state.revision
        content = answers.get(revision, key)
        if content is None:
            content = http.to_json(await _by_id(call, version))
            if revision == call.state.revision:
                answers.keep(key, content)
        return http.raw_answer(call.request, content)

    return [
        api.route("GET", "/schemas", list_schemas),
        api.route("GET", "/schemas/types", list_types),
        api.route("GET", "/schemas/ids/{id}", get_by_id),
        api.route("GET", "/schemas/ids/{id}/schema", get_text),
        api.route("GET", "/schemas/ids/{id}/subjects", list_subjects),
        api.route("GET", "/schemas/ids/{id}/versions", list_versions),
        api.route("GET", "/schemas/guids/{guid}", get_by_guid),
        api.route("GET", "/schemas/guids/{guid}/ids", list_ids),
    ]


async def list_types(call: Call) -> Response:
    return call.answer(list(TYPES))


async def list_schemas(call: Call) -> Response:
    with_deleted, rule_type = call.flag("deleted"), http.query(call.request, "ruleType")
    prefix = http.query(call.request, "subjectPrefix")
    subjects = call.state.subjects(prefix, deleted=with_deleted)
    aliases = _aliases(call, prefix) if call.flag("aliases") else {}
    found: list[Version] = []
    for subject in sorted({*subjects, *aliases}):
        if call.may(Operation.READ, subject):
            versions = call.state.versions(subject, deleted=with_deleted)
            found += versions[-1:] if call.flag("latestOnly") else versions
    if rule_type:
        found = [each for each in found if _has_rule(each, rule_type)]
    shown = http.page(found, call.request, call.registry.settings.search_limit)
    return call.answer([_extended(each, aliases.get(each.subject)) for each in shown])


def _aliases(call: Call, prefix: str) -> dict[str, list[str]]:
    """Of those that the caller may see."""
    found = {
        subject: [each for each in names if call.may(Operation.DESCRIBE, each)]
        for subject, names in call.state.aliases(prefix).items()
    }
    return {subject: names for subject, names in found.items() if names}


def _extended(version: Version, aliases: list[str] | None) -> dict[str, Any]:
    content = version_answer(version, version.value.text)
    return {**content, "aliases": aliases} if aliases else content


def _has_rule(version: Version, rule_type: str) -> bool:
    rules = version.value.rules or {}
    lists = [found for found in rules.values() if isinstance(found, list)]
    return any(rule.get("type") == rule_type for found in lists for rule in found)


async def _by_id(call: Call, version: Version) -> dict[str, Any]:
    text = await call.registry.formatted(version, http.query(call.request, "format"))
    is_named = "subject" in call.request.query_params
    content = string_answer(version, text, is_named=is_named)
    if http.query(call.request, "referenceFormat") == "qualified" and "references" in content:
        for reference in content["references"]:
            reference["subject"] = qualify(version.subject, reference["subject"])
    if call.flag("fetchMaxId"):
        content["maxId"] = call.state.max_id(context_of(version.subject))
    return content


def _candidates(call: Call, schema_id: int) -> list[Version]:
    """All versions with this id: in the context and of the subject that are named, or else wherever that subject is."""
    name = http.query(call.request, "subject")
    context, bare = parse_subject(name)
    own = call.state.versions_by_id(context, schema_id)
    if not bare:
        return own
    for subject in call.state.same_subjects(name):
        found = call.state.versions_by_id(context_of(subject), schema_id)
        if named := [each for each in found if each.subject == subject]:
            return named
    return own if context_prefix(context) == "" else []


def _find(call: Call, schema_id: int) -> Version:
    """One that the caller may read."""
    found = _candidates(call, schema_id)
    if not found:
        raise errors.schema_not_found(schema_id)
    for version in found:
        if call.may(Operation.READ, version.subject):
            return version
    call.check(Operation.READ, found[0].subject)
    raise AssertionError("the caller may not, and was told so")


async def get_text(call: Call) -> Response:
    version = _find(call, http.path_id(call.request))
    text = await call.registry.formatted(version, http.query(call.request, "format"))
    return http.raw_answer(call.request, text.encode("utf-8", "replace"))


def _versions(call: Call) -> list[Version]:
    version = _find(call, http.path_id(call.request))
    found = call.state.versions_by_id(context_of(version.subject), version.id)
    bare = parse_subject(http.query(call.request, "subject")).name
    if bare:
        found = [each for each in found if each.subject == version.subject]
    visible = [each for each in found if call.flag("deleted") or not each.is_deleted]
    return [each for each in visible if call.may(Operation.DESCRIBE, each.subject)]


async def list_subjects(call: Call) -> Response:
    return call.answer(http.page(list(dict.fromkeys(each.subject for each in _versions(call))), call.request))


async def list_versions(call: Call) -> Response:
    found = [{"subject": each.subject, "version": each.version} for each in _versions(call)]
    return call.answer(http.page(found, call.request))


async def get_by_guid(call: Call) -> Response:
    guid = http.path_text(call.request, "guid")
    for version in _by_guid(call, guid):
        text = await call.registry.formatted(version, http.query(call.request, "format"))
        return call.answer(string_answer(version, text, is_named=False))
    raise errors.schema_not_found(guid)


async def list_ids(call: Call) -> Response:
    found = _by_guid(call, http.path_text(call.request, "guid"))
    return call.answer([{"context": context_of(each.subject), "id": each.id} for each in found])


def _by_guid(call: Call, guid: str) -> list[Version]:
    """One of each context."""
    found = []
    for context in call.state.all_contexts():
        schema_id = call.state.id_of(context, guid.lower())
        versions = [] if schema_id is None else call.state.versions_by_id(context, schema_id)
        found += [each for each in versions if call.may(Operation.READ, each.subject)][:1]
    return found
