"""What readers ask for; settings; and the OpenAPI document."""

import pytest
from starlette.requests import Request

from tailrace.apps.gateway.app import OPERATIONS
from tailrace.apps.gateway.consume.asking import read_shown, read_wanted
from tailrace.apps.gateway.consume.places import read_places, write_places
from tailrace.apps.gateway.errors import GatewayError, of_record
from tailrace.apps.gateway.openapi import describe
from tailrace.apps.gateway.settings import GatewaySettings, parse_gateway_settings
from tailrace.apps.opening import RecordOpener
from tailrace.client.consumer import EARLIEST, Isolation
from tailrace.client.lanes import UnknownOutcomeError
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.registry.client import RegistryAddress, RegistryClient


def asked(query: str, **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": raw})


def test_what_is_wanted():
    wanted = read_wanted(asked("from=earliest&partition=2,0&isolation=read_committed"), "t")
    assert wanted[:4] == ("t", None, (2, 0), EARLIEST)
    assert wanted.isolation is Isolation.READ_COMMITTED
    assert read_wanted(asked("partition=1&offset=7"), "t").places == {1: 7}
    resumed = read_wanted(asked("partition=1&offset=7", last_event_id="1:9"), "t")
    assert resumed.places == {1: 9}
    group = read_wanted(asked("group=g&from=earliest"), "t", acknowledges=True)
    assert (group.group, group.acknowledges) == ("g", True)
    assert not read_wanted(asked(""), "t", acknowledges=True).acknowledges


@pytest.mark.parametrize(
    "query",
    [
        "from=yesterday",
        "offset=5",
        "partition=x",
        "partition=1,2&offset=3",
        "group=",
        "group=g&partition=0",
        "group=g&from=1700000000000",
        "isolation=none",
        "last-event-id=five",
        "last-event-id=0:99999999999999999999",
        f"group={'g' * 250}",
    ],
)
def test_what_cannot_be_wanted(query: str):
    with pytest.raises(GatewayError) as failure:
        read_wanted(asked(query), "t")
    assert failure.value.status == 400


def test_formats():
    opener = RecordOpener(RegistryClient(RegistryAddress("http://127.0.0.1:1")))
    assert read_shown(asked("key.format=binary"), lambda: opener) == ("binary", "json", None)
    assert read_shown(asked("value.format=schema"), lambda: opener) == ("string", "schema", opener)
    with pytest.raises(GatewayError):
        read_shown(asked("value.format=xml"), lambda: opener)


def test_a_place_is_read_as_it_was_written():
    assert read_places(write_places({3: 17, 0: 5})) == {0: 5, 3: 17}
    assert read_places("") == {}


def test_settings():
    assert parse_gateway_settings({"acks": "ALL", "linger.ms": "5"}) == GatewaySettings(linger_ms=5)
    for bad in ({"nope": "1"}, {"linger.ms": "x"}, {"acks": "0"}, {"authentication": "none,basic"}):
        with pytest.raises(KafkaError):
            parse_gateway_settings(bad)


def test_a_record_is_told_by_what_is_known_of_it():
    unknown = of_record(UnknownOutcomeError(ErrorCode.NETWORK_EXCEPTION, "the connection is lost"))
    assert unknown["outcome"] == "unknown"
    assert unknown["error_code"] == 50003
    assert of_record(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ""))["outcome"] == "not_written"


def test_the_document_refers_to_schemas_that_it_has():
    document = describe(OPERATIONS)
    schemas = document["components"]["schemas"]

    def references(node: object) -> list[str]:
        if isinstance(node, dict):
            found = [node["$ref"]] if "$ref" in node else []
            return found + [each for value in node.values() for each in references(value)]
        return [each for value in node for each in references(value)] if isinstance(node, list) else []

    used = {each.removeprefix("#/components/schemas/") for each in references(document)}
    assert used <= schemas.keys()
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))
    assert len(names) == len(OPERATIONS)
    for path, operations in document["paths"].items():
        for each in operations.values():
            named = [parameter["name"] for parameter in each["parameters"] if parameter["in"] == "path"]
            assert all(f"{{{name}}}" in path for name in named)
            assert path.count("{") == len(named)
