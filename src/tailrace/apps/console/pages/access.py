"""Who may come in, do what, and how much: users, ACLs and quotas, and their changes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console, change, confirmed, done, field, show
from tailrace.client.acls import AclAdmin, AclFilter
from tailrace.client.security.quotas import QuotaAdmin
from tailrace.client.security.users import DescribedUser, delete_credential, describe_users, set_credential
from tailrace.model.acls import CLUSTER_NAME, WILDCARD, Acl, Kind, Operation, PatternType, Permission
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    IP,
    IP_KEYS,
    USER,
    QuotaEntity,
    describe_entity,
    quota_entity,
)
from tailrace.model.security import ScramMechanism

_ROWS_MAX = 1000
_SALT_BYTES = 20
# As the commands and Kafka's own tools write whoever has no quota of their own.
_DEFAULT_ENTITY = "<default>"


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/access", access, console),
        change("/access/users", set_user, console),
        change("/access/users/delete", delete_user, console),
        change("/access/acls", add_acl, console),
        change("/access/acls/delete", remove_acl, console),
        change("/access/quotas", set_quota, console),
    )


async def access(console: Console, visit: Visit, request: Request) -> Response:
    cluster = visit.cluster
    users, users_problem = await _told(lambda: describe_users(cluster))
    acls, acls_problem = await _told(lambda: AclAdmin(cluster).find(AclFilter()))
    quotas, quotas_problem = await _told(lambda: QuotaAdmin(cluster).quotas())
    return console.html(
        request,
        "access.html",
        user=visit.user,
        users=[(each.user, ", ".join(_mechanisms(each))) for each in users[:_ROWS_MAX]],
        users_problem=users_problem,
        mechanisms=[each.mechanism_name for each in reversed(ScramMechanism)],
        acls=acls[:_ROWS_MAX],
        acls_count=len(acls),
        acls_problem=acls_problem,
        kinds=list(Kind),
        operations=list(Operation),
        quotas=quotas[:_ROWS_MAX],
        quotas_problem=quotas_problem,
        quota_keys=[*CLIENT_KEYS, *IP_KEYS],
        default_entity=_DEFAULT_ENTITY,
    )


# --- users


async def set_user(console: Console, visit: Visit, request: Request) -> Response:
    name, mechanism = _needed(request, "name"), _mechanism(field(request, "mechanism"))
    (known,) = await describe_users(visit.cluster, [name])
    if not known.error_code and mechanism.mechanism_name in _mechanisms(known):
        words = [
            f"{name} logs in by {mechanism.mechanism_name} already, and gets another password.",
            "Connections that it has live on; with the old password it opens no new ones.",
        ]
    else:
        words = [f"{name} may log in by {mechanism.mechanism_name} with this password.", "What it may do, ACLs say."]
    page = confirmed(console, visit, request, title=f"A password for {name}", words=words, typed="Password")
    if page is not None:
        return page
    password = request.state.form["secret"]
    await set_credential(visit.cluster, name, mechanism, password, salt=os.urandom(_SALT_BYTES))
    return done("/access", f"{name} may log in by {mechanism.mechanism_name}.")


async def delete_user(console: Console, visit: Visit, request: Request) -> Response:
    name = _needed(request, "name")
    (known,) = await describe_users(visit.cluster, [name])
    if known.error_code:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"{name} has no password here: {known.error_message}")
    words = [
        f"{name} may not log in by {' or '.join(_mechanisms(known))} any more. Connections that it has live on.",
        "ACLs and quotas of that name stay.",
    ]
    title = f"Delete user {name}"
    page = confirmed(console, visit, request, title=title, words=words, word=name, is_grave=True)
    if page is not None:
        return page
    # A request may name a user once.
    for each in known.credential_infos:
        await delete_credential(visit.cluster, name, ScramMechanism(each.mechanism))
    return done("/access", f"{name} was deleted.")


def _mechanisms(user: DescribedUser) -> list[str]:
    return [ScramMechanism(each.mechanism).mechanism_name for each in user.credential_infos]


def _mechanism(word: str) -> ScramMechanism:
    for each in ScramMechanism:
        if each.mechanism_name == word:
            return each
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{word!r} is no mechanism of passwords: use SCRAM-SHA-512")


# --- ACLs


async def add_acl(console: Console, visit: Visit, request: Request) -> Response:
    acl = _acl(request)
    admin = AclAdmin(visit.cluster)
    beside = await admin.find(AclFilter(acl.kind, acl.name, acl.pattern_type))
    words = [_in_words(acl)]
    if acl in beside:
        words.append("It is there already: nothing changes.")
    elif acl.permission is Permission.DENY:
        words.append("What is denied stays denied, whatever else is allowed.")
    elif not beside:
        words.append(
            "Nothing has been said of that yet: where allow.everyone.if.no.acl.found is true, whoever no ACL allows is "
            "shut out by this."
        )
    page = confirmed(console, visit, request, title="Add an ACL", words=words)
    if page is not None:
        return page
    await admin.create([acl])
    return done("/access", "The ACL was added.")


async def remove_acl(console: Console, visit: Visit, request: Request) -> Response:
    acl = _acl(request)
    exactly = AclFilter(acl.kind, acl.name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission)
    admin = AclAdmin(visit.cluster)
    if not await admin.find(exactly):
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "this ACL is not there any more")
    words = [f"This does not hold any more: {_in_words(acl)}", "Requests that are being served are not broken off."]
    page = confirmed(console, visit, request, title="Remove an ACL", words=words)
    if page is not None:
        return page
    await admin.delete(exactly)
    return done("/access", "The ACL was removed.")


def _acl(request: Request) -> Acl:
    who = _needed(request, "principal")
    kind: Kind = _chosen(Kind, field(request, "kind"))
    is_prefixed = field(request, "pattern") == PatternType.PREFIXED.name
    return Acl(
        kind,
        CLUSTER_NAME if kind is Kind.CLUSTER else _needed(request, "resource"),
        PatternType.PREFIXED if is_prefixed and kind is not Kind.CLUSTER else PatternType.LITERAL,
        who if ":" in who else f"User:{who}",
        field(request, "host") or WILDCARD,
        _chosen(Operation, field(request, "operation")),
        _chosen(Permission, field(request, "permission")),
    )


def _in_words(acl: Acl) -> str:
    kind = acl.kind.name.lower().replace("_", " ")
    if acl.kind is Kind.CLUSTER:
        what = "the cluster"
    elif acl.pattern_type is PatternType.PREFIXED:
        what = f"every {kind} whose name begins with {acl.name}"
    else:
        what = f"every {kind}" if acl.name == WILDCARD else f"{kind} {acl.name}"
    do = "do anything with" if acl.operation is Operation.ALL else f"{acl.operation.name.lower().replace('_', ' ')} on"
    may = "may" if acl.permission is Permission.ALLOW else "may not"
    where = "any address" if acl.host == WILDCARD else acl.host
    return f"{acl.principal} {may} {do} {what}, from {where}."


def _chosen(choices: Any, word: str) -> Any:
    try:
        return choices[word]
    except KeyError:
        known = ", ".join(choices.__members__)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{word!r} is none of {known}") from None


# --- quotas


async def set_quota(console: Console, visit: Visit, request: Request) -> Response:
    entity, key = _entity(request), _needed(request, "key")
    value = _value(request)
    admin = QuotaAdmin(visit.cluster)
    await admin.alter(entity, {key: value}, validate_only=True)
    before = next((each.values.get(key) for each in await admin.quotas(entity, is_strict=True)), None)
    now = "has no" if before is None else f"has {before:.15g} as"
    then = "has none from then on" if value is None else f"has {value:.15g} from then on"
    words = [f"{describe_entity(entity)} {now} {key} now, and {then}.", "Each broker counts for itself."]
    page = confirmed(console, visit, request, title="Change a quota", words=words, is_asked=True)
    if page is not None:
        return page
    await admin.alter(entity, {key: value})
    return done("/access", f"The quota of {describe_entity(entity)} was changed.")


def _entity(request: Request) -> QuotaEntity:
    named = {kind: field(request, kind) for kind in (USER, CLIENT_ID, IP)}
    entity = quota_entity((k, None if name == _DEFAULT_ENTITY else name) for k, name in named.items() if name)
    if not entity:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "say whose quota it is: a user, a client id or an address")
    return entity


def _value(request: Request) -> float | None:
    text = field(request, "value")
    try:
        return float(text) if text else None
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text!r} is no number, such as 1048576") from None


# --- both


def _needed(request: Request, name: str) -> str:
    text = field(request, name)
    if not text:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the field {name} is empty")
    return text


async def _told(question: Callable[[], Awaitable[Any]]) -> tuple[list[Any], str | None]:
    """What was found, or why nothing is shown."""
    try:
        return list(await question()), None
    except KafkaError as error:
        return [], error.message or error.code.name
