"""Confluent's REST API v3: the examples of their README, every resource by its links, and what is refused."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import quote, urlsplit

import jsonschema
import pytest
from confluent_kafka import Consumer, Producer

from tailrace.testing import Broker

from .conftest import Gateway


def records_of(broker: Broker, topic: str, count: int) -> list:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "look", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count - len(found), 1.0)
    consumer.close()
    return found


def test_the_examples_of_confluents_readme(gateway: Gateway):
    status, topic = gateway.ask("POST", "topics", {"topic_name": "jsontest"})
    assert status == 201
    assert topic["kind"] == "KafkaTopic"
    assert topic["metadata"] == {
        "self": f"{gateway.url}/v3/clusters/{gateway.cluster_id}/topics/jsontest",
        "resource_name": f"crn:///kafka={gateway.cluster_id}/topic=jsontest",
    }
    status, (receipt,) = gateway.receipts("jsontest", '{"value":{"type":"JSON","data":{"name":"testUser"}}}')
    assert status == 200
    assert receipt.pop("timestamp").endswith("Z")
    assert receipt == {
        "error_code": 200,
        "cluster_id": gateway.cluster_id,
        "topic_name": "jsontest",
        "partition_id": 0,
        "offset": 0,
        "value": {"type": "JSON", "size": 19},
    }
    two = '{"value":{"type":"JSON","data":"ONE"}} {"value":{"type":"JSON","data":"TWO"}}'
    assert [each["offset"] for each in gateway.receipts("jsontest", two)[1]] == [1, 2]
    entries = [
        {"id": "1", "value": {"type": "STRING", "data": "Message"}},
        {"id": "2", "value": {"type": "BINARY", "data": "Message$"}},
    ]
    status, told = gateway.ask("POST", "topics/jsontest/records:batch", {"entries": entries})
    assert status == 207
    assert [(each["id"], each["offset"]) for each in told["successes"]] == [("1", 3)]
    assert told["failures"][0]["id"] == "2"
    assert told["failures"][0]["error_code"] == 400
    assert told["failures"][0]["message"] == 'Bad Request: data="Message$" is not a valid base64 string.'


def test_other_clients_read_what_was_written(gateway: Gateway, broker: Broker):
    topic = gateway.create("read-by-others", 3)
    record = {
        "partition_id": 2,
        "key": {"type": "BINARY", "data": base64.b64encode(b"\xff\x00").decode()},
        "value": {"type": "STRING", "data": "grün"},
        "headers": [{"name": "h", "value": "AQ=="}, {"name": "h", "value": None}],
        "timestamp": "2026-01-31T12:00:00.123Z",
    }
    assert gateway.receipts(topic, json.dumps(record))[1][0]["timestamp"] == "2026-01-31T12:00:00.123Z"
    plain = [{"key": "k", "value": {"a": 1}, "headers": {"x": "y"}, "partition": 1}, {"partition": 1, "value": None}]
    status, told = gateway.ask("POST", f"/topics/{topic}", plain)
    assert status == 200
    assert [(each["partition"], each["offset"]) for each in told["results"]] == [(1, 0), (1, 1)]
    v2 = {"records": [{"key": "AA==", "value": "AQ==", "partition": 0}]}
    kind = "application/vnd.kafka.binary.v2+json"
    status, told = gateway.ask(
        "POST", f"/topics/{topic}", v2, content_type=kind, Accept="application/vnd.kafka.v2+json"
    )
    assert status == 200
    assert told["offsets"] == [{"partition": 0, "offset": 0, "error_code": None, "error": None}]
    found = {(each.partition(), each.offset()): each for each in records_of(broker, topic, 4)}
    assert found[2, 0].key() == b"\xff\x00"
    assert found[2, 0].value() == "grün".encode()
    assert found[2, 0].headers() == [("h", b"\x01"), ("h", None)]
    assert found[2, 0].timestamp()[1] == 1769860800123
    assert (found[1, 0].key(), found[1, 0].value(), found[1, 0].headers()) == (b"k", b'{"a":1}', [("x", b"y")])
    assert found[1, 1].value() is None
    assert (found[0, 0].key(), found[0, 0].value()) == (b"\0", b"\1")


def test_receipts_come_while_the_request_is_open(gateway: Gateway):
    """As Confluent's streaming example does it: the next record is sent when the receipt of the last one is there."""
    topic = gateway.create("streamed")
    place = urlsplit(gateway.url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    connection.connect()
    had = threading.Semaphore(1)
    stop = threading.Event()

    def records():
        for number in range(5):
            assert had.acquire(timeout=60)
            yield json.dumps({"value": {"type": "STRING", "data": f"v{number}"}}).encode()
        stop.wait(60)

    def write() -> None:
        path = f"/v3/clusters/{gateway.cluster_id}/topics/{topic}/records"
        connection.request("POST", path, records(), {"Content-Type": "application/json"}, encode_chunked=True)

    writing = threading.Thread(target=write)
    writing.start()
    answer = HTTPResponse(connection.sock)
    answer.begin()
    assert answer.status == 200
    for number in range(5):
        assert json.loads(answer.readline())["offset"] == number
        had.release()
    stop.set()
    assert answer.read() == b""
    writing.join(60)
    connection.close()


def test_many_records_keep_their_order(gateway: Gateway, broker: Broker):
    topic = gateway.create("ordered", 2)
    body = "".join(
        json.dumps({"partition_id": number % 2, "value": {"type": "STRING", "data": str(number)}})
        for number in range(3000)
    )
    status, receipts = gateway.receipts(topic, body)
    assert status == 200
    assert [(each["partition_id"], each["offset"]) for each in receipts] == [(n % 2, n // 2) for n in range(3000)]
    found = {(each.partition(), each.offset()): each.value() for each in records_of(broker, topic, 3000)}
    assert all(found[n % 2, n // 2] == str(n).encode() for n in range(3000))


# --- resources


@pytest.fixture(scope="module")
def document(gateway: Gateway) -> dict:
    status, found = gateway.ask("GET", "/openapi.json")
    assert status == 200
    return found


def test_every_link_leads_to_what_the_document_describes(gateway: Gateway, broker: Broker, document: dict):
    topic = gateway.create("linked")
    gateway.ask("PUT", f"topics/{topic}/configs/retention.ms", {"value": "3600000"})
    client = {"bootstrap.servers": broker.bootstrap}
    producer = Producer(client)
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    group = "linked/group ü"
    consumer = Consumer(client | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert consumer.consume(1, 60)
    consumer.commit(asynchronous=False)
    seen: dict[str, dict] = {}
    coming = [f"{gateway.url}/v3/clusters"]
    ours = (topic, "broker", quote(group, safe=""), f"clusters/{gateway.cluster_id}")
    while coming:
        url = coming.pop()
        path = url.removeprefix(gateway.url)
        if path in seen or (not path.endswith("v3/clusters") and not any(name in path for name in ours)):
            continue
        if (
            ("/topics/" in path and topic not in path and "/-/" not in path)
            or path.count("/configs/")
            or "reassign" in path
        ):
            continue
        status, found = gateway.ask("GET", path)
        # There is no authorizer here, and so no ACLs.
        assert status == 200 or path.endswith("/acls"), (path, found)
        seen[path] = found
        check(document, path, found)
        coming += links_of(found)
    consumer.close()
    kinds = {found.get("kind") for found in seen.values()}
    assert kinds >= {
        "KafkaConsumerLag",
        "KafkaConsumerAssignment",
        "KafkaReplica",
        "KafkaTopicConfigList",
        "KafkaBroker",
    }


def links_of(node: object) -> list[str]:
    if isinstance(node, dict):
        found = [node["related"]] if isinstance(node.get("related"), str) else []
        found += [node["self"]] if isinstance(node.get("self"), str) and "?" not in node["self"] else []
        return found + [each for value in node.values() for each in links_of(value)]
    return [each for value in node for each in links_of(value)] if isinstance(node, list) else []


def check(document: dict, path: str, found: dict) -> None:
    """Against the schema of the first operation whose path fits."""
    for template, operations in document["paths"].items():
        words, asked = template.split("/"), path.split("/")
        fits = len(words) == len(asked) and all(a == b or a.startswith("{") for a, b in zip(words, asked, strict=True))
        if fits and "get" in operations and "error_code" not in found:
            (schema,) = operations["get"]["responses"]["200"]["content"].values()
            jsonschema.validate(found, {**schema["schema"], "components": document["components"]})
            return
    assert "error_code" in found, f"no operation for {path}"


def test_topics_and_settings_are_changed(gateway: Gateway):
    name = "changed"
    body = {"topic_name": name, "partitions_count": 2, "configs": [{"name": "retention.ms", "value": 1000}]}
    assert gateway.ask("POST", "topics", {**body, "validate_only": True})[0] == 200
    assert gateway.ask("GET", f"topics/{name}")[0] == 404
    assert gateway.ask("POST", "topics", body)[0] == 201
    status, told = gateway.ask("POST", "topics", body)
    assert (status, told["error_code"]) == (400, 40002)
    setting = f"topics/{name}/configs/retention.ms"
    assert gateway.ask("GET", setting)[1]["value"] == "1000"
    assert gateway.ask("PUT", setting, {"value": "2000"}) == (204, None)
    assert gateway.ask("GET", setting)[1]["value"] == "2000"
    assert gateway.ask("DELETE", setting) == (204, None)
    assert gateway.ask("GET", setting)[1]["is_default"]
    changes = {"data": [{"name": "retention.ms", "value": "5"}, {"name": "cleanup.policy", "value": "compact"}]}
    assert gateway.ask("POST", f"topics/{name}/configs:alter", changes | {"validate_only": True})[0] == 204
    assert gateway.ask("GET", setting)[1]["is_default"]
    assert gateway.ask("POST", f"topics/{name}/configs:alter", changes)[0] == 204
    assert gateway.ask("GET", f"topics/{name}/configs/cleanup.policy")[1]["value"] == "compact"
    assert gateway.ask("PUT", setting, {"value": "soon"})[1]["error_code"] == 40002
    assert gateway.ask("PATCH", f"topics/{name}", {"partitions_count": 3})[1]["partitions_count"] == 3
    assert gateway.ask("GET", f"topics/{name}/partitions/2/offset")[1]["latest_offset"] == 0
    assert gateway.ask("GET", f"topics/{name}/partitions/3")[1]["error_code"] == 40402
    assert gateway.ask("DELETE", f"topics/{name}") == (204, None)
    status, told = gateway.ask("DELETE", f"topics/{name}")
    assert (status, told["error_code"]) == (404, 40403)


# --- what is refused


def test_whatever_is_sent_is_refused_with_a_code(gateway: Gateway, document: dict):
    """Every operation, with bodies and names of every bad kind: 4xx, as JSON, with error_code and message."""
    bodies = (b"", b"{", b"[]", b"null", b"7", b'{"what":1}', b"\xff\xfe", b'{"a":' * 5000)
    for template, operations in document["paths"].items():
        for method, operation in operations.items():
            path = template.replace("{cluster_id}", gateway.cluster_id)
            for parameter in operation["parameters"]:
                path = path.replace(f"{{{parameter['name']}}}", "no such%2Fname".replace(" ", "%20"))
            if "requestBody" in operation:
                for body in bodies:
                    refused(gateway, method, path, body)
                status = refused(gateway, method, path, b"<a/>", content_type="text/xml")
                assert status == 415, (path, status)
            elif "{" in template.replace("{cluster_id}", "") and "/v3/" in template:
                refused(gateway, method, path, None)


def refused(gateway: Gateway, method: str, path: str, body: bytes | None, **options: str) -> int:
    status, kind, text = gateway.raw(method.upper(), path, body, **options)
    assert 400 <= status < 500, (method, path, body, status, text)
    assert kind == "application/json"
    told = json.loads(text)
    assert isinstance(told["error_code"], int)
    assert told["message"]
    return status


def test_what_is_too_large_is_refused(gateway: Gateway):
    topic = gateway.create("large")
    status, told = gateway.ask("POST", f"/topics/{topic}", [{"value": "x" * 300_000}])
    assert (status, told["error_code"]) == (413, 413)
    status, receipts = gateway.receipts(topic, json.dumps({"value": {"type": "STRING", "data": "x" * 150_000}}))
    assert (status, receipts[0]["error_code"]) == (413, 413)
    good = '{"value":{"type":"STRING","data":"good"}}'
    status, receipts = gateway.receipts(topic, good + json.dumps({"value": {"type": "STRING", "data": "x" * 150_000}}))
    assert [each["error_code"] for each in receipts] == [200, 413]
    assert status == 200


def test_a_record_that_is_refused_does_not_stop_the_others(gateway: Gateway):
    topic = gateway.create("mixed")
    bodies = [
        {"value": {"type": "STRING", "data": "a"}},
        {"partition_id": 7, "value": {"type": "STRING", "data": "b"}},
        {"value": {"type": "BINARY", "data": "?"}},
        {"value": {"type": "STRING", "data": "c"}},
    ]
    status, receipts = gateway.receipts(topic, "".join(map(json.dumps, bodies)) + '{"value" oops}')
    assert status == 200
    assert [each["error_code"] for each in receipts] == [200, 40402, 400, 200, 400]
    assert [each.get("outcome") for each in receipts[1:3]] == ["not_written"] * 2


def test_a_page_from_elsewhere_may_not_ask(gateway: Gateway):
    assert gateway.ask("GET", "/v3/clusters", Origin="https://evil.example")[1]["error_code"] == 40301
    assert gateway.ask("GET", "/v3/clusters", Origin=gateway.url)[0] == 200
    assert gateway.raw("GET", "/v3/clusters", Host="rebound.example")[0] == 400


def test_other_forms_are_refused(gateway: Gateway):
    assert gateway.ask("GET", "/v3/clusters", Accept="text/html")[0] == 406
    assert gateway.ask("GET", "/v3/clusters/other/topics")[1]["error_code"] == 404
    assert gateway.ask("PUT", "/v3/clusters")[0] == 405
