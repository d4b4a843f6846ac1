"""Every path and every parameter of the API's reference, one by one: what is answered with it, and what without.

All ask one registry, which has what `filled` writes into it; who writes does it to subjects of its own.
"""

import base64
import json
from collections.abc import Iterator

import pytest
from google.protobuf import descriptor_pb2

from tailrace.testing import Broker

from .asking import Answer, ask

PROTO = 'syntax = "proto3"; message P { int32 a = 1; }'
RULE = {"name": "c", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true", "disabled": False}


def record(*names: str, name: str = "R") -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": each, "type": "string", "default": ""} for each in names]}
    )


def rest(url: str, method: str, path: str, content: object = None) -> Answer:
    return ask(url, method, path, content)


@pytest.fixture(scope="module")
def filled() -> Iterator[str]:
    """Subject a has versions 1 to 3, and 2 is deleted; b refers to a; gone is deleted; c is of the context .c."""
    with Broker(registry=True, start_timeout_s=60) as broker:
        url = broker.registry_url

        def done(method: str, path: str, content: object = None) -> None:
            answer = rest(url, method, path, content)
            assert answer.status in (200, 204), (path, answer)

        for number, names in enumerate(("x", "xy", "xyz")):
            extra = {"metadata": {"properties": {"owner": f"o{number}"}}, "ruleSet": {"domainRules": [RULE]}}
            done("POST", "/subjects/a/versions", {"schema": record(*names), **(extra if number else {})})
        done("DELETE", "/subjects/a/versions/2")
        outer = {"type": "record", "name": "B", "fields": [{"name": "r", "type": "R"}]}
        reference = {"name": "R", "subject": "a", "version": 1}
        done("POST", "/subjects/b/versions", {"schema": json.dumps(outer), "references": [reference]})
        done("POST", "/subjects/gone/versions", {"schema": record("g", name="G")})
        done("DELETE", "/subjects/gone")
        done("POST", "/subjects/p/versions", {"schema": PROTO, "schemaType": "PROTOBUF"})
        done("POST", "/subjects/:.c:a/versions", {"schema": record("x")})
        done("POST", "/subjects/:.c:b/versions", {"schema": json.dumps(outer), "references": [reference]})
        done("PUT", "/config/nick", {"alias": "a"})
        done("PUT", "/config/b", {"compatibility": "FULL"})
        done("PUT", "/mode/b", {"mode": "READONLY"})
        yield url


# A question, and what it is answered: a list as it is, a dict by those of its fields, a refusal by its code.
GETS = [
    ("/", {}),
    ("/schemas/types", ["JSON", "PROTOBUF", "AVRO"]),
    ("/contexts", [".", ".c"]),
    ("/contexts?offset=1", [".c"]),
    ("/contexts?limit=1", ["."]),
    ("/contexts?contextPrefix=.c", [".c"]),
    ("/v1/metadata/deployment", {"attributes": []}),
    # subjects
    ("/subjects", [":.c:a", ":.c:b", "a", "b", "p"]),
    ("/subjects?subjectPrefix=:*:a", [":.c:a", "a"]),
    ("/subjects?subjectPrefix=a", ["a"]),
    ("/subjects?subjectPrefix=:.c:", [":.c:a", ":.c:b"]),
    ("/subjects?deleted=true", [":.c:a", ":.c:b", "a", "b", "gone", "p"]),
    ("/subjects?deleted=True&deletedOnly=true", ["gone"]),
    ("/subjects?deletedOnly=true", ["gone"]),
    ("/subjects?offset=1&limit=2", [":.c:b", "a"]),
    ("/subjects?limit=0", [":.c:a", ":.c:b", "a", "b", "p"]),
    ("/subjects?limit=-1", [":.c:a", ":.c:b", "a", "b", "p"]),
    ("/contexts/.c/subjects", [":.c:a", ":.c:b"]),
    # versions
    ("/subjects/a/versions", [1, 3]),
    ("/subjects/nick/versions", [1, 3]),
    ("/subjects/a/versions?deleted=true", [1, 2, 3]),
    ("/subjects/a/versions?deletedOnly=true", [2]),
    ("/subjects/a/versions?deletedAsNegative=true", [1, -2, 3]),
    ("/subjects/a/versions?deleted=true&offset=1&limit=1", [2]),
    ("/subjects/gone/versions", 40401),
    ("/subjects/gone/versions?deleted=true", [1]),
    ("/subjects/a/versions/1", {"subject": "a", "version": 1, "id": 1}),
    ("/subjects/nick/versions/latest", {"subject": "a", "version": 3, "id": 3}),
    ("/subjects/a/versions/-1", {"version": 3, "metadata": {"properties": {"owner": "o2"}}}),
    ("/subjects/a/versions/latest", {"ruleSet": {"domainRules": [RULE]}}),
    ("/subjects/a/versions/2", 40402),
    ("/subjects/a/versions/2?deleted=true", {"version": 2, "deleted": True}),
    ("/subjects/a/versions/4", 40402),
    ("/subjects/a/versions/0", 42202),
    ("/subjects/a/versions/2147483648", 42202),
    ("/subjects/:.c:b/versions/1", {"references": [{"name": "R", "subject": "a", "version": 1}]}),
    (
        "/subjects/:.c:b/versions/1?referenceFormat=qualified",
        {"references": [{"name": "R", "subject": ":.c:a", "version": 1}]},
    ),
    ("/subjects/a/versions/1/schema", {"name": "R"}),
    ("/subjects/a/versions/2/schema", 40402),
    ("/subjects/a/versions/2/schema?deleted=true", {"name": "R"}),
    ("/subjects/a/versions/1/referencedby", [4]),
    ("/subjects/a/versions/1/referencedby?offset=1", []),
    ("/subjects/a/versions/1/referencedby?limit=1", [4]),
    ("/subjects/a/versions/3/referencedby", []),
    ("/subjects/a/metadata?key=owner&value=o2", {"version": 3}),
    ("/subjects/a/metadata?key=owner&value=o1", 40403),
    ("/subjects/a/metadata?key=owner&value=o1&deleted=true", {"version": 2}),
    ("/subjects/none/metadata?key=owner&value=o1", 40401),
    # by id and guid
    ("/schemas/ids/1", {"schema": record("x").replace(" ", "")}),
    ("/schemas/ids/1?fetchMaxId=true", {"maxId": 6}),
    ("/schemas/ids/1?subject=a", {"subject": "a", "version": 1}),
    ("/schemas/ids/1?subject=:.c:a", {"subject": ":.c:a"}),
    (
        "/schemas/ids/2?subject=:.c:b&referenceFormat=qualified",
        {"references": [{"name": "R", "subject": ":.c:a", "version": 1}]},
    ),
    ("/contexts/.c/schemas/ids/1", {"subject": ":.c:a"}),
    ("/schemas/ids/99", 40403),
    ("/schemas/ids/1/schema", {"name": "R"}),
    ("/schemas/ids/2/schema?subject=:.c:b", {"name": "B"}),
    ("/schemas/ids/99/schema", 40403),
    ("/schemas/ids/1/subjects", ["a"]),
    ("/schemas/ids/5/subjects", []),
    ("/schemas/ids/5/subjects?deleted=true", ["gone"]),
    ("/schemas/ids/1/subjects?subject=:.c:a", [":.c:a"]),
    ("/schemas/ids/1/subjects?offset=1", []),
    ("/schemas/ids/1/subjects?limit=1", ["a"]),
    ("/schemas/ids/1/versions", [{"subject": "a", "version": 1}]),
    ("/schemas/ids/2/versions", []),
    ("/schemas/ids/2/versions?deleted=true", [{"subject": "a", "version": 2}]),
    ("/schemas/ids/1/versions?offset=1", []),
    ("/schemas/ids/1/versions?limit=1", [{"subject": "a", "version": 1}]),
    ("/schemas/ids/99/versions", 40403),
    ("/schemas/guids/none", 40403),
    # settings
    ("/config", {"compatibilityLevel": "BACKWARD"}),
    ("/config?defaultToGlobal=true", {"compatibilityLevel": "BACKWARD"}),
    ("/config/b", {"compatibilityLevel": "FULL"}),
    ("/config/a", 40408),
    ("/config/a?defaultToGlobal=true", {"compatibilityLevel": "BACKWARD"}),
    ("/contexts/.c/config", 40408),
    ("/contexts/.c/config?defaultToGlobal=true", {"compatibilityLevel": "BACKWARD"}),
    ("/mode", {"mode": "READWRITE"}),
    ("/mode?defaultToGlobal=true", {"mode": "READWRITE"}),
    ("/mode/b", {"mode": "READONLY"}),
    ("/mode/a", 40409),
    ("/mode/a?defaultToGlobal=true", {"mode": "READWRITE"}),
]


def check(answer: Answer, expected: object) -> None:
    if isinstance(expected, int):
        assert answer.code == expected, answer
    elif isinstance(expected, dict):
        assert answer.status == 200, answer
        assert {name: answer.content.get(name) for name in expected} == expected, answer
    else:
        assert answer.content == expected, answer


@pytest.mark.parametrize(("path", "expected"), GETS)
def test_a_question(filled, path, expected):
    check(rest(filled, "GET", path), expected)


def places(answer: Answer) -> list[tuple[str, int]]:
    return [(each["subject"], each["version"]) for each in answer.content]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [(":.c:a", 1), (":.c:b", 1), ("a", 1), ("a", 3), ("b", 1), ("p", 1)]),
        ("subjectPrefix=a", [("a", 1), ("a", 3)]),
        ("subjectPrefix=a&deleted=true", [("a", 1), ("a", 2), ("a", 3)]),
        ("subjectPrefix=a&latestOnly=true", [("a", 3)]),
        ("subjectPrefix=:*:a&latestOnly=true", [(":.c:a", 1), ("a", 3)]),
        ("ruleType=CEL", [("a", 3)]),
        ("ruleType=OTHER", []),
        ("subjectPrefix=nick", []),
        ("subjectPrefix=nick&aliases=true", [("a", 1), ("a", 3)]),
        ("offset=2&limit=1", [("a", 1)]),
    ],
)
def test_lists_of_schemas(filled, query, expected):
    assert places(rest(filled, "GET", f"/schemas?{query}")) == expected


def test_aliases_are_told(filled):
    assert rest(filled, "GET", "/schemas?subjectPrefix=nick&aliases=true").content[0]["aliases"] == ["nick"]
    assert "aliases" not in rest(filled, "GET", "/schemas?subjectPrefix=a").content[0]


def test_guids(filled):
    guid = rest(filled, "GET", "/subjects/p/versions/1").content["guid"]
    assert rest(filled, "GET", f"/schemas/guids/{guid}").content["schemaType"] == "PROTOBUF"
    assert rest(filled, "GET", f"/schemas/guids/{guid}/ids").content == [{"context": ".", "id": 6}]


def messages_of(serialized: str) -> list[str]:
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    return [each.name for each in file.message_type]


def test_formats(filled):
    guid = rest(filled, "GET", "/subjects/p/versions/1").content["guid"]
    for path in ("/schemas/ids/6", f"/schemas/guids/{guid}", "/subjects/p/versions/1"):
        assert messages_of(rest(filled, "GET", f"{path}?format=serialized").content["schema"]) == ["P"]
    for path in ("/subjects/b/versions/1", "/schemas/ids/4"):
        resolved = json.loads(rest(filled, "GET", f"{path}?format=resolved").content["schema"])
        assert resolved["fields"][0]["type"]["name"] == "R"
        assert rest(filled, "GET", f"{path}/schema?format=resolved").content == resolved
    body = {"schema": PROTO, "schemaType": "PROTOBUF"}
    assert messages_of(rest(filled, "POST", "/subjects/p?format=serialized", body).content["schema"]) == ["P"]
    found = rest(filled, "GET", "/subjects/a/metadata?key=owner&value=o2&format=resolved").content
    assert json.loads(found["schema"])["name"] == "R"
    # Whoever registers is sent a schema only where the registry has added to it: here the reference's version.
    latest = {**body, "references": [{"name": "p.proto", "subject": "p", "version": -1}]}
    sent = rest(filled, "POST", "/subjects/q/versions?format=serialized", latest).content
    assert (messages_of(sent["schema"]), sent["references"][0]["version"]) == (["P"], 1)


def test_what_is_sent_may_be_normalized(filled):
    two = ['{"type":"object","title":"T"}', '{"title":"T","type":"object"}']
    bodies = [{"schema": text, "schemaType": "JSON"} for text in two]
    first = rest(filled, "POST", "/subjects/n/versions?normalize=true", bodies[0]).content
    assert rest(filled, "POST", "/subjects/n/versions?normalize=true", bodies[1]).content["id"] == first["id"]
    assert rest(filled, "POST", "/subjects/n?normalize=true", bodies[1]).content["version"] == 1
    assert rest(filled, "POST", "/subjects/n", bodies[0]).code == 40403
    assert rest(filled, "DELETE", "/subjects/n").content == [1]
    assert rest(filled, "POST", "/subjects/n?normalize=true", bodies[1]).code == 40401
    assert rest(filled, "POST", "/subjects/n?normalize=true&deleted=true", bodies[1]).content["version"] == 1


def test_comparing(filled):
    fits, breaks = {"schema": record("x", "w")}, {"schema": '"int"'}
    for path in ("/compatibility/subjects/a/versions", "/compatibility/subjects/a/versions/latest"):
        assert rest(filled, "POST", path, fits).content == {"is_compatible": True}
        assert rest(filled, "POST", path, breaks).content == {"is_compatible": False}
        told = rest(filled, "POST", f"{path}?verbose=true&normalize=true", breaks).content
        assert "TYPE_MISMATCH" in told["messages"][0]
        assert rest(filled, "POST", path, {"schema": '"strin"'}).code == 42201
        assert rest(filled, "POST", f"{path}?verbose=true", {"schema": '"strin"'}).content["is_compatible"] is False
    assert rest(filled, "POST", "/compatibility/subjects/a/versions/2", fits).code == 40402
    assert rest(filled, "POST", "/compatibility/subjects/none/versions", fits).content == {"is_compatible": True}


def test_settings_are_written_and_deleted(filled):
    everything = {
        "normalize": True,
        "validateFields": True,
        "validateNewSchemas": True,
        "validateRules": True,
        "compatibility": "FULL",
        "compatibilityPolicy": "LENIENT",
        "compatibilityGroup": "major",
        "defaultMetadata": {"properties": {"a": "b"}},
        "overrideMetadata": {"properties": {"c": "d"}},
        "defaultRuleSet": {"domainRules": [RULE]},
        "overrideRuleSet": {"domainRules": [RULE]},
        "alias": "other",
        "aliasForDeks": "keys",
    }
    assert rest(filled, "PUT", "/config/s", everything).content == everything
    stored = {**everything, "compatibilityLevel": "FULL"}
    del stored["compatibility"]
    assert rest(filled, "GET", "/config/s").content == stored
    # What is not named stays, and null takes away.
    assert rest(filled, "PUT", "/config/s", {"alias": None}).content.keys() == everything.keys() - {"alias"}
    assert rest(filled, "DELETE", "/config/s").content["compatibilityLevel"] == "FULL"
    assert rest(filled, "GET", "/config/s").code == 40408
    assert rest(filled, "PUT", "/config", {"compatibility": "NONE"}).content == {"compatibility": "NONE"}
    assert rest(filled, "DELETE", "/config").content == {"compatibilityLevel": "NONE"}
    assert rest(filled, "GET", "/config").content == {"compatibilityLevel": "BACKWARD"}


def test_modes_are_written_and_deleted(filled):
    assert rest(filled, "PUT", "/mode/a", {"mode": "IMPORT"}).code == 42205
    assert rest(filled, "PUT", "/mode/a?force=true", {"mode": "IMPORT"}).content == {"mode": "IMPORT"}
    assert rest(filled, "DELETE", "/mode/a").content == {"mode": "IMPORT"}
    assert rest(filled, "PUT", "/mode/:.c:a", {"mode": "READONLY"}).status == 200
    assert rest(filled, "PUT", "/mode", {"mode": "READONLY"}).content == {"mode": "READONLY"}
    assert rest(filled, "POST", "/subjects/new/versions", {"schema": '"int"'}).code == 42205
    assert rest(filled, "DELETE", "/mode").content == {"mode": "READONLY"}
    assert rest(filled, "GET", "/mode").content == {"mode": "READWRITE"}
    assert rest(filled, "DELETE", "/mode/:.c:?recursive=true").status == 200
    assert rest(filled, "GET", "/mode/:.c:a").code == 40409


def test_registering_by_force(filled):
    other = {"schema": '"int"'}
    assert rest(filled, "POST", "/subjects/force/versions", {"schema": '"string"'}).status == 200
    assert rest(filled, "POST", "/subjects/force/versions", other).code == 40901
    assert rest(filled, "POST", "/subjects/force/versions?force=true", other).content["version"] == 2


def test_deletions(filled):
    for name in ("x", "y"):
        assert rest(filled, "POST", "/subjects/:.d:del/versions", {"schema": record(name)}).status == 200
    path = "/subjects/:.d:del"
    assert rest(filled, "DELETE", f"{path}/versions/1?permanent=true").code == 40407
    assert rest(filled, "DELETE", f"{path}/versions/1").content == 1
    assert rest(filled, "DELETE", f"{path}/versions/1").code == 40406
    assert rest(filled, "DELETE", f"{path}/versions/1?permanent=true").content == 1
    assert rest(filled, "DELETE", f"{path}?permanent=true").code == 40405
    assert rest(filled, "DELETE", path).content == [2]
    assert rest(filled, "DELETE", path).code == 40404
    assert rest(filled, "DELETE", "/contexts/.d").code == 42211
    assert rest(filled, "DELETE", f"{path}?permanent=true").content == [2]
    assert rest(filled, "DELETE", "/contexts/.d").status == 204
    assert ".d" not in rest(filled, "GET", "/contexts").content
