"""The REST API of a real registry: what clients send by mistake or on purpose, and what it answers."""

import base64
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from google.protobuf import descriptor_pb2

from tailrace.testing import Broker

from .asking import Answer, ask, avro

Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(registry=True, start_timeout_s=60) as found:
        yield found


@pytest.fixture(scope="module")
def asked(broker: Broker) -> Ask:
    return lambda *words, **options: ask(broker.registry_url, *words, **options)


def register(asked: Ask, subject: str, schema) -> int:
    answer = asked("POST", f"/subjects/{subject}/versions", schema)
    assert answer.status == 200, answer
    return answer.content["id"]


# --- what there is


def test_it_says_what_it_is(asked):
    assert asked("GET", "/").content == {}
    assert sorted(asked("GET", "/schemas/types").content) == ["AVRO", "JSON", "PROTOBUF"]
    assert asked("GET", "/v1/metadata/id").content["scope"]["clusters"]["schema-registry-cluster"] == "schema-registry"
    assert "tailrace" in asked("GET", "/v1/metadata/version").content["version"]
    assert asked("GET", "/contexts").content[0] == "."
    assert asked("GET", "/associations/resources/-/t?resourceType=topic&associationType=value").code == 40401


def test_a_schema_by_every_way_that_leads_to_it(asked):
    schema_id = register(asked, "ways-value", avro("ways"))
    version = asked("GET", "/subjects/ways-value/versions/latest").content
    assert (version["subject"], version["version"], version["id"]) == ("ways-value", 1, schema_id)
    assert asked("GET", f"/schemas/ids/{schema_id}").content["schema"] == version["schema"]
    assert asked("GET", f"/schemas/ids/{schema_id}?fetchMaxId=true").content["maxId"] >= schema_id
    assert asked("GET", f"/schemas/ids/{schema_id}/schema").content == json.loads(version["schema"])
    assert asked("GET", f"/schemas/ids/{schema_id}/subjects").content == ["ways-value"]
    assert asked("GET", f"/schemas/ids/{schema_id}/versions").content == [{"subject": "ways-value", "version": 1}]
    assert asked("GET", f"/schemas/guids/{version['guid']}").content["schema"] == version["schema"]
    assert asked("GET", f"/schemas/guids/{version['guid']}/ids").content == [{"context": ".", "id": schema_id}]
    assert asked("GET", "/subjects/ways-value/versions/1/schema").content == json.loads(version["schema"])
    assert asked("POST", "/subjects/ways-value", avro("ways")).content["id"] == schema_id
    assert asked("GET", "/schemas?subjectPrefix=ways&latestOnly=true").content[0]["id"] == schema_id


def test_lists_have_pages(asked):
    for number in range(5):
        register(asked, f"page-{number}", avro(f"page{number}"))
    assert asked("GET", "/subjects?subjectPrefix=page-&offset=1&limit=2").content == ["page-1", "page-2"]
    assert len(asked("GET", "/schemas?subjectPrefix=page-&limit=3").content) == 3


def test_metadata_and_rules_are_kept(asked):
    rule = {"name": "c", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}
    new = {**avro("kept"), "metadata": {"properties": {"owner": "me"}}, "ruleSet": {"domainRules": [rule]}}
    register(asked, "kept-value", new)
    found = asked("GET", "/subjects/kept-value/versions/1").content
    assert found["metadata"] == {"properties": {"owner": "me"}}
    assert found["ruleSet"]["domainRules"][0]["expr"] == "true"
    assert asked("GET", "/subjects/kept-value/metadata?key=owner&value=me").content["version"] == 1
    assert asked("GET", "/subjects/kept-value/metadata?key=owner&value=you").code == 40403
    encrypting = {**avro("no"), "ruleSet": {"domainRules": [{**rule, "type": "ENCRYPT"}]}}
    refused = asked("POST", "/subjects/no-value/versions", encrypting)
    assert refused.code == 42210
    assert "no key management" in refused.content["message"]


def test_names_with_slashes_and_contexts(asked):
    name = "team%2Forders%3Avalue"
    schema_id = register(asked, name, avro("slash"))
    assert asked("GET", f"/subjects/{name}/versions/1").content["subject"] == "team/orders:value"
    in_context = asked("POST", "/contexts/.green/subjects/g-value/versions", avro("green")).content["id"]
    assert in_context == 1  # A context counts for itself.
    assert asked("GET", "/subjects/:.green:g-value/versions").content == [1]
    assert asked("GET", "/contexts/.green/subjects").content == [":.green:g-value"]
    assert asked("GET", "/contexts/.green/schemas/ids/1").content["subject"] == ":.green:g-value"
    assert asked("PUT", "/contexts/.green/config", {"compatibility": "NONE"}).status == 200
    assert asked("GET", "/config/:.green:").content["compatibilityLevel"] == "NONE"
    assert asked("GET", f"/schemas/ids/{schema_id}/subjects").content == ["team/orders:value"]
    assert asked("DELETE", "/contexts/.green").code == 42211


def test_references_hold_what_they_refer_to(asked):
    address = {"type": "record", "name": "Address", "fields": [{"name": "street", "type": "string"}]}
    register(asked, "address", {"schema": json.dumps(address)})
    person = {"type": "record", "name": "P", "fields": [{"name": "home", "type": "Address"}]}
    reference = {"name": "Address", "subject": "address", "version": 1}
    schema_id = register(asked, "person", {"schema": json.dumps(person), "references": [reference]})
    assert asked("GET", "/subjects/address/versions/1/referencedby").content == [schema_id]
    assert asked("DELETE", "/subjects/address/versions/1").code == 42206
    assert asked("DELETE", "/subjects/person").content == [1]
    assert asked("GET", "/subjects/address/versions/1/referencedby").content == []
    assert asked("GET", "/subjects/address/versions/1/referencedby?deleted=true").content == [schema_id]
    assert asked("DELETE", "/subjects/address").content == [1]
    again = asked("POST", "/subjects/late/versions", {"schema": json.dumps(person), "references": [reference]})
    assert again.code == 42201
    assert "it is deleted" in again.content["message"]
    assert asked("DELETE", "/subjects/address?permanent=true").code == 42206


@pytest.mark.parametrize("kind", ["JSON", "PROTOBUF"])
def test_references_that_lead_back_are_no_ring(asked, kind):
    """Each version refers to one that was there before it: a subject may refer to itself, and a ring cannot be."""
    texts = {
        "JSON": lambda number: json.dumps({"title": str(number), **({"$ref": f"{number}.json"} if number else {})}),
        "PROTOBUF": lambda number: f'{"import" if number else "//"} "{number}.json";\nmessage M{number} {{}}',
    }

    def named(number: int) -> dict:
        return {"name": f"{number}.json", "subject": f"ring-{kind}", "version": number}

    new = {"schemaType": kind, "schema": texts[kind](0)}
    assert asked("PUT", f"/config/ring-{kind}", {"compatibility": "NONE"}).status == 200
    itself = {**new, "schema": texts[kind](1), "references": [named(1)]}
    assert asked("POST", f"/subjects/ring-{kind}/versions", itself).code == 42201
    register(asked, f"ring-{kind}", new)
    for number in (1, 2):
        again = {**itself, "schema": texts[kind](number), "references": [named(number)]}
        register(asked, f"ring-{kind}", again)
    assert asked("GET", f"/subjects/ring-{kind}/versions").content == [1, 2, 3]
    assert len(asked("GET", f"/subjects/ring-{kind}/versions/2/referencedby").content) == 1


def test_formats_of_a_stored_schema(asked):
    register(asked, "formats-inner", avro("inner"))
    inner = json.loads(avro("inner")["schema"])["name"]
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "r", "type": inner}]}
    reference = {"name": inner, "subject": "formats-inner", "version": 1}
    schema_id = register(asked, "formats", {"schema": json.dumps(outer), "references": [reference]})
    resolved = asked("GET", f"/schemas/ids/{schema_id}?format=resolved").content["schema"]
    assert json.loads(resolved)["fields"][0]["type"]["name"] == inner
    proto = {"schema": 'syntax = "proto3"; message M { int32 a = 1; }', "schemaType": "PROTOBUF"}
    proto_id = register(asked, "formats-proto", proto)
    serialized = asked("GET", f"/schemas/ids/{proto_id}?format=serialized").content["schema"]
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert [each.name for each in file.message_type] == ["M"]
    # What came as a descriptor is the same schema.
    assert register(asked, "formats-proto", {**proto, "schema": serialized}) == proto_id


def test_modes_of_a_subject(asked):
    register(asked, "mode-value", avro("a"))
    assert asked("PUT", "/mode/mode-value", {"mode": "READONLY"}).content == {"mode": "READONLY"}
    assert asked("POST", "/subjects/mode-value/versions", avro("a", "b")).code == 42205
    assert asked("DELETE", "/subjects/mode-value").code == 42205
    assert asked("PUT", "/mode/mode-value", {"mode": "READWRITE"}).status == 200
    assert asked("PUT", "/mode/mode-value", {"mode": "IMPORT"}).code == 42205  # It has schemas; `force` is the word.
    assert asked("PUT", "/mode/mode-import", {"mode": "IMPORT"}).status == 200
    new = {**avro("imported", "field"), "id": 7007, "version": 3}
    assert asked("POST", "/subjects/mode-import/versions", new).content["id"] == 7007
    assert asked("GET", "/subjects/mode-import/versions").content == [3]
    assert asked("DELETE", "/mode/mode-import").status == 200
    assert asked("GET", "/mode/mode-import?defaultToGlobal=true").content == {"mode": "READWRITE"}


def test_normalized_schemas_are_one(asked):
    """The same properties in another order."""
    texts = ('{"type":"object","properties":{"a":{},"b":{}}}', '{"properties":{"b":{},"a":{}},"type":"object"}')
    ids = set()
    for text in texts:
        new = {"schema": text, "schemaType": "JSON"}
        ids.add(asked("POST", "/subjects/normal-value/versions?normalize=true", new).content["id"])
    assert len(ids) == 1


# --- mistakes


@pytest.mark.parametrize(
    "mistake",
    [
        ("GET", "/nothing", None, 404, 404),
        ("PATCH", "/subjects", None, 405, 405),
        ("GET", "/schemas/ids/x", None, 404, 404),
        ("GET", "/schemas/ids/99999999999999999999", None, 404, 404),
        ("GET", "/schemas/ids/999999", None, 404, 40403),
        ("GET", "/schemas/guids/nope", None, 404, 40403),
        ("GET", "/subjects/none/versions", None, 404, 40401),
        ("GET", "/subjects/none/versions/1", None, 404, 40401),
        ("GET", "/subjects/none/versions/0", None, 422, 42202),
        ("GET", "/subjects/none/versions/last", None, 422, 42202),
        ("POST", "/subjects/none", avro("x"), 404, 40401),
        ("DELETE", "/subjects/none", None, 404, 40401),
        ("DELETE", "/subjects/none/versions/1", None, 404, 40401),
        ("GET", "/config/none", None, 404, 40408),
        ("GET", "/mode/none", None, 404, 40409),
        ("DELETE", "/config/none", None, 404, 40401),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 422, 42203),
        ("PUT", "/mode", {"mode": "FAST"}, 422, 42204),
        ("POST", "/subjects/x/versions", b"{broken", 400, 400),
        ("POST", "/subjects/x/versions", b"\xff\xfe", 400, 400),
        ("POST", "/subjects/x/versions", b"", 422, 422),
        ("POST", "/subjects/x/versions", b"[]", 422, 422),
        ("POST", "/subjects/x/versions", b"[" * 200_000, 400, 400),
        ("POST", "/subjects/x/versions", {"schema": {"type": "string"}}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": ""}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": '{"type":"strin"}'}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": '"string"', "schemaType": "THRIFT"}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": "[" * 10_000 + "]" * 10_000}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": '{"a":' * 10_000, "schemaType": "JSON"}, 422, 42201),
        (
            "POST",
            "/subjects/x/versions",
            {"schema": '{"not":' * 10_000 + "1" + "}" * 10_000, "schemaType": "JSON"},
            422,
            42201,
        ),
        ("POST", "/subjects/x/versions", {"schema": "message M {" * 10_000, "schemaType": "PROTOBUF"}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": "AAAA" * 10_000, "schemaType": "PROTOBUF"}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": '"string"', "references": "x"}, 422, 422),
        ("POST", "/subjects/x/versions", {"schema": '"string"', "references": [{"name": "a"}]}, 422, 42201),
        ("POST", "/subjects/x/versions", {"schema": '"string"', "id": "7"}, 422, 422),
        ("POST", "/subjects/x/versions", {"schema": '"string"', "id": 7}, 422, 42205),
        ("POST", "/subjects/x%0Ay/versions", {"schema": '"string"'}, 422, 42208),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": '"string"'}, 422, 42208),
        ("POST", "/contexts/.a:b/subjects/x/versions", {"schema": '"string"'}, 400, 400),
        ("POST", "/compatibility/subjects/none/versions/7", avro("x"), 404, 40401),
    ],
)
def test_mistakes_are_told_as_confluent_tells_them(asked, mistake):
    method, path, content, status, code = mistake
    answer = asked(method, path, content)
    assert (answer.status, answer.code) == (status, code), answer
    assert answer.content["message"]


def test_content_types(asked):
    body = json.dumps(avro("types")).encode()
    wrong = asked("POST", "/subjects/types/versions", body, headers={"Content-Type": "text/xml"})
    assert (wrong.status, wrong.code) == (415, 415)
    for good in ("application/json", "application/vnd.schemaregistry+json; charset=utf-8", "application/octet-stream"):
        assert asked("POST", "/subjects/types/versions", body, headers={"Content-Type": good}).status == 200
    assert asked("GET", "/subjects", headers={"Accept": "text/html"}).status == 406
    plain = asked("GET", "/subjects", headers={"Accept": "application/json"})
    assert plain.headers["Content-Type"] == "application/json"
    weighed = "application/json;q=0.2, application/vnd.schemaregistry.v1+json;q=0.9, */*;q=0.1"
    assert "v1+json" in asked("GET", "/subjects", headers={"Accept": weighed}).headers["Content-Type"]


def test_large_schemas_are_refused_with_a_word(asked):
    huge = avro(*(f"field_{number}" for number in range(30_000)))
    assert len(huge["schema"]) > 1_500_000
    refused = asked("POST", "/subjects/huge-value/versions", huge)
    assert (refused.status, refused.code) == (422, 42209)
    assert asked("POST", "/subjects/huge-value/versions", b" " * (9 * 1024 * 1024)).status == 413
    # It goes on as before.
    large = avro(*(f"field_{number}" for number in range(10_000)))
    assert asked("POST", "/subjects/large-value/versions", large).status == 200


def test_a_path_that_is_no_path(broker):
    where = urlsplit(broker.registry_url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
    try:
        for path in ("/subjects/%ff%fe/versions", "/subjects//versions", "/contexts//subjects", "/subjects/%2F"):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            assert response.status in (200, 400, 404, 405), path
    finally:
        connection.close()


def test_a_config_that_changes_under_load(asked):
    """Every registration is judged by a level that held while it was judged, and none of them fails otherwise."""
    register(asked, "load-value", avro("a"))
    answers: list[Answer] = []
    stop = threading.Event()

    def change() -> None:
        level = 0
        while not stop.is_set():
            level += 1
            new = {"compatibility": ("NONE", "FULL_TRANSITIVE")[level % 2]}
            assert asked("PUT", "/config/load-value", new).status == 200

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for number in range(40):
            breaking = {"schema": json.dumps({"type": "record", "name": f"R{number}", "fields": []})}
            answers.append(asked("POST", "/subjects/load-value/versions", breaking))
    finally:
        stop.set()
        changing.join()
    assert {answer.status for answer in answers} <= {200, 409}
    versions = asked("GET", "/subjects/load-value/versions").content
    assert versions == list(range(1, len(versions) + 1))
    assert len(versions) == 1 + sum(answer.status == 200 for answer in answers)
