"""/subjects and /compatibility: versions of subjects, registered, looked up, compared and deleted."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Route

from tailrace.apps.registry import errors
from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.state.deciding import NewSchema, prepare_comparison
from tailrace.apps.registry.state.deleting import decide_subject_deletion, decide_version_deletion
from tailrace.apps.registry.state.names import EVERY_CONTEXT, is_valid_subject, qualify
from tailrace.apps.registry.state.policy import messages
from tailrace.apps.registry.state.store import LATEST, Version
from tailrace.apps.registry.web import http
from tailrace.apps.registry.web.answers import read_new_schema, registered_answer, version_answer
from tailrace.apps.registry.web.api import Api, Call
from tailrace.model.acls import Operation


def subject_routes(api: Api) -> Sequence[Route]:
    one = "/subjects/{subject}"
    version = f"{one}/versions/{{version}}"
    return [
        api.route("GET", "/subjects", list_subjects),
        api.route("POST", one, look_up),
        api.route("DELETE", one, delete_subject),
        api.route("GET", f"{one}/metadata", find_by_metadata),
        api.route("GET", f"{one}/versions", list_versions),
        api.route("POST", f"{one}/versions", register),
        api.route("GET", version, get_version),
        api.route("DELETE", version, delete_version),
        api.route("GET", f"{version}/schema", get_text),
        api.route("GET", f"{version}/referencedby", get_referrers),
        api.route("POST", f"/compatibility{one}/versions", compare_with_all),
        api.route("POST", f"/compatibility{version}", compare_with_one),
    ]


async def list_subjects(call: Call) -> Response:
    prefix = http.query(call.request, "subjectPrefix", EVERY_CONTEXT)
    found = call.state.subjects(prefix, deleted=call.flag("deleted"), deleted_only=call.flag("deletedOnly"))
    return call.answer(http.page([each for each in found if call.may(Operation.DESCRIBE, each)], call.request))


async def list_versions(call: Call) -> Response:
    subject = call.subject(Operation.DESCRIBE)
    is_only, with_deleted, is_negative = (call.flag(name) for name in ("deletedOnly", "deleted", "deletedAsNegative"))
    if not call.state.has_subjects(subject, deleted=with_deleted or is_only):
        raise errors.subject_not_found(subject)
    versions = call.state.versions(subject, deleted=with_deleted or is_only or is_negative)
    if is_negative:
        numbers = [-each.version if each.is_deleted else each.version for each in versions]
    else:
        numbers = [each.version for each in versions if each.is_deleted or not is_only]
    return call.answer(http.page(numbers, call.request))


async def get_version(call: Call) -> Response:
    version = _find_version(call)
    text = await call.registry.formatted(version, http.query(call.request, "format"))
    content = version_answer(version, text)
    if http.query(call.request, "referenceFormat") == "qualified" and "references" in content:
        for reference in content["references"]:
            reference["subject"] = qualify(version.subject, reference["subject"])
    return call.answer(content)


async def get_text(call: Call) -> Response:
    version = _find_version(call)
    text = await call.registry.formatted(version, http.query(call.request, "format"))
    return http.raw_answer(call.request, text.encode("utf-8", "replace"))


def _find_version(call: Call, *, deleted: bool | None = None) -> Version:
    subject = call.subject(Operation.READ)
    number = http.path_version(call.request)
    with_deleted = call.flag("deleted") if deleted is None else deleted
    names = _same_subjects(call, subject)
    for name in names:
        if version := call.state.find(name, number, deleted=with_deleted):
            return version
    if any(call.state.has_subjects(each, deleted=with_deleted) for each in names):
        raise errors.version_not_found(number)
    raise errors.subject_not_found(subject)


def _same_subjects(call: Call, subject: str) -> list[str]:
    """As far as the caller may read them: in another context a subject has another name."""
    return [each for each in call.state.same_subjects(subject) if call.may(Operation.READ, each)]


async def get_referrers(call: Call) -> Response:
    version = _find_version(call, deleted=True)
    found = call.state.referrers(version.subject, version.version, deleted=call.flag("deleted"))
    limit = call.registry.settings.search_limit
    return call.answer(http.page([each.id for each in found], call.request, limit))


async def find_by_metadata(call: Call) -> Response:
    subject = call.subject(Operation.READ)
    options = call.request.query_params
    wanted = dict(zip(options.getlist("key"), options.getlist("value"), strict=False))
    versions = call.state.versions(subject, deleted=call.flag("deleted"))
    if not versions:
        raise errors.subject_not_found(subject)
    for version in reversed(versions):
        if version.value.metadata is not None:
            properties = version.value.metadata.get("properties", {})
            if wanted.items() <= properties.items():
                text = await call.registry.formatted(version, http.query(call.request, "format"))
                return call.answer(version_answer(version, text))
    raise errors.schema_not_found()


# --- registering


def _read_schema(call: Call, subject: str, document: dict[str, object]) -> NewSchema:
    """Whose references the caller may read: a schema shows what it refers to."""
    new = read_new_schema(document)
    for reference in new.references:
        call.check(Operation.READ, qualify(subject, reference.subject))
    return new


async def register(call: Call) -> Response:
    document = await call.json()
    name = http.path_text(call.request, "subject")
    if not is_valid_subject(name):
        raise errors.invalid_subject(name)
    subject = call.subject(Operation.WRITE)
    new = _read_schema(call, subject, document)
    normalize, force = call.flag("normalize"), call.flag("force")
    # Everybody knows what is there; the writer is asked for what is new.
    version = None
    if new.version == 0 and new.id < 0:
        version = await call.registry.find_exact(subject, new, normalize=normalize)
    if version is None:
        version = await call.registry.register(subject, new, normalize=normalize, force=force)
    answer = registered_answer(version, new)
    format_name = http.query(call.request, "format")
    if format_name and "schema" in answer:
        answer["schema"] = await call.registry.formatted(version, format_name)
    return call.answer(answer)


async def look_up(call: Call) -> Response:
    document = await call.json()
    subject = call.subject(Operation.READ)
    new, with_deleted = _read_schema(call, subject, document), call.flag("deleted")
    for name in _same_subjects(call, subject):
        if not call.state.has_subjects(name, deleted=with_deleted):
            continue
        version = await call.registry.look_up(name, new, normalize=call.flag("normalize"), deleted=with_deleted)
        if version is not None:
            text = await call.registry.formatted(version, http.query(call.request, "format"))
            return call.answer(version_answer(version, text))
    if call.state.has_subjects(subject, deleted=with_deleted):
        raise errors.schema_not_found()
    raise errors.subject_not_found(subject)


# --- comparing


async def compare_with_all(call: Call) -> Response:
    document = await call.json()
    subject = call.subject(Operation.READ)
    return await _compare(call, subject, document, call.state.versions(subject))


async def compare_with_one(call: Call) -> Response:
    document = await call.json()
    subject = call.subject(Operation.READ)
    number = http.path_version(call.request)
    version = call.state.find(subject, number)
    if version is None and number != LATEST:
        if not call.state.has_subjects(subject, deleted=False):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(number)
    return await _compare(call, subject, document, [] if version is None else [version])


async def _compare(call: Call, subject: str, document: dict[str, object], versions: Sequence[Version]) -> Response:
    is_verbose = call.flag("verbose")
    try:
        new = _read_schema(call, subject, document)
        question = prepare_comparison(call.state, subject, new, versions, normalize=call.flag("normalize"))
        judgement = await call.registry.judge(question)
    except RegistryError as error:
        if not is_verbose or error.code != 42201:
            raise
        return call.answer({"is_compatible": False, "messages": [error.message]})
    found = judgement.incompatibilities
    content: dict[str, object] = {"is_compatible": not found}
    if is_verbose:
        content["messages"] = messages(found, question.policy)
    return call.answer(content)


# --- deleting


async def delete_version(call: Call) -> Response:
    subject = call.subject(Operation.DELETE)
    number = http.path_version(call.request)
    permanent = call.flag("permanent")
    return await call.write(lambda: decide_version_deletion(call.state, subject, number, permanent=permanent))


async def delete_subject(call: Call) -> Response:
    subject = call.subject(Operation.DELETE)
    permanent = call.flag("permanent")
    return await call.write(lambda: decide_subject_deletion(call.state, subject, permanent=permanent))
