"""ACLs: found, made and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeVar

from starlette.responses import Response

from tailrace.apps.gateway.errors import bad_field, bad_request
from tailrace.apps.gateway.rest.clusters import CLUSTER
from tailrace.apps.gateway.web import Call, Operation, answer
from tailrace.client.acls import AclAdmin, AclFilter
from tailrace.model.acls import ANY, MATCH, WILDCARD, Acl, Kind, PatternType, Permission
from tailrace.model.acls import Operation as Act

E = TypeVar("E", bound=IntEnum)
_FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_PATTERNS = {"LITERAL": PatternType.LITERAL, "PREFIXED": PatternType.PREFIXED, "ANY": ANY, "MATCH": MATCH}
_QUERY = {
    "resource_type": "TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER or ANY",
    "resource_name": "the name of the resource",
    "pattern_type": "LITERAL, PREFIXED, MATCH or ANY",
    "principal": "such as User:ann",
    "host": "an address, or *",
    "operation": "READ, WRITE and so on, or ANY",
    "permission": "ALLOW, DENY or ANY",
}


def _admin(call: Call) -> AclAdmin:
    return AclAdmin(call.caller.admin.cluster)


async def _search(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    found = await _admin(call).find(_filter(call.request.query_params))
    return call.collection("KafkaAclList", (cluster_id, "acls"), [_document(call, cluster_id, each) for each in found])


async def _delete(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    asked = call.request.query_params
    # Without these three a slip of the hand would delete all of them.
    if missing := [name for name in ("resource_type", "operation", "permission") if not asked.get(name)]:
        raise bad_request(f"{missing[0]} is missing; ANY means any")
    found = await _admin(call).delete(_filter(asked))
    return answer({"data": [_document(call, cluster_id, each) for each in found]})


async def _create(call: Call) -> Response:
    await call.cluster_id()
    await _admin(call).create([_new(await call.json())])
    return answer({}, 201)


async def _create_batch(call: Call) -> Response:
    await call.cluster_id()
    document = await call.fields(("data",))
    if not isinstance(document["data"], list) or not document["data"]:
        raise bad_field("data is a list of ACLs.")
    await _admin(call).create([_new(each) for each in document["data"]])
    return answer({}, 201)


def _new(raw: Any) -> Acl:
    if not isinstance(raw, dict) or not raw.keys() <= set(_FIELDS):
        raise bad_field(f"An ACL is an object of {', '.join(_FIELDS)}.")
    given = {"pattern_type": "LITERAL", "host": WILDCARD} | raw
    for name in _FIELDS:
        if not isinstance(given.get(name), str):
            raise bad_field(f"{name} is missing, or no text.")
    pattern = _word(PatternType, "pattern_type", given["pattern_type"])
    return Acl(
        _word(Kind, "resource_type", given["resource_type"]),
        given["resource_name"],
        pattern,
        given["principal"],
        given["host"],
        _word(Act, "operation", given["operation"]),
        _word(Permission, "permission", given["permission"]),
    )


def _filter(asked: Mapping[str, str]) -> AclFilter:
    pattern = asked.get("pattern_type", "ANY").upper()
    if pattern not in _PATTERNS:
        raise bad_request(f"pattern_type={pattern} is none of {', '.join(_PATTERNS)}")
    return AclFilter(
        _wanted(Kind, "resource_type", asked),
        asked.get("resource_name"),
        _PATTERNS[pattern],
        asked.get("principal"),
        asked.get("host"),
        _wanted(Act, "operation", asked),
        _wanted(Permission, "permission", asked),
    )


def _wanted(words: type[E], name: str, asked: Mapping[str, str]) -> E | None:
    text = asked.get(name, "ANY")
    return None if text.upper() == "ANY" else _word(words, name, text)


def _word(words: type[E], name: str, text: str) -> E:
    try:
        return words[text.upper()]
    except KeyError:
        raise bad_request(f"{name}={text} is none of {', '.join(each.name for each in words)}") from None


def _document(call: Call, cluster_id: str, acl: Acl) -> dict[str, Any]:
    from urllib.parse import urlencode

    fields = {
        "resource_type": acl.kind.name,
        "resource_name": acl.name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }
    place = f"{call.url(cluster_id, 'acls')}?{urlencode(fields)}"
    return {"kind": "KafkaAcl", "metadata": {"self": place}, "cluster_id": cluster_id, **fields}


_PATH = f"{CLUSTER}/acls"
OPERATIONS = (
    Operation("GET", _PATH, _search, "ACLs that fit", answer="AclDataList", query=_QUERY),
    Operation("POST", _PATH, _create, "Make an ACL", body="CreateAclRequestData", status=201),
    Operation("DELETE", _PATH, _delete, "Delete ACLs that fit, which are answered", answer="AclDataList", query=_QUERY),
    Operation("POST", f"{_PATH}:batch", _create_batch, "Make ACLs", body="CreateAclRequestDataList", status=201),
)
