"""`produce` and `consume` with a schema registry: JSON in, JSON out, Avro, Protobuf or JSON Schema between."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.registry_stand_in import StandIn, stand_in

Run = Callable[..., tuple[int, str, str]]
NOTE = '{"name":"note","type":"string","default":""}'
AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},' + NOTE + "]}"
PROTO = 'syntax = "proto3"; message Order { int32 id = 1; string note = 2; } message Other { string x = 1; }'
_numbers = itertools.count()


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with stand_in() as found:
        yield found


@pytest.fixture
def topic() -> str:
    return f"cli-framed-{next(_numbers)}"


@pytest.fixture
def produce(run: Run, registry: StandIn, tmp_path: Path) -> Run:
    def produce_lines(topic: str, content: str, *words: str) -> tuple[int, str, str]:
        path = tmp_path / "input"
        path.write_text(content)
        return run("produce", topic, "--file", str(path), "--schema-registry", registry.url, *words)

    return produce_lines


@pytest.mark.parametrize(("name", "text"), [("order.avsc", AVRO), ("order.proto", PROTO), ("order.json", "{}")])
def test_what_is_produced_with_a_schema_is_consumed_with_it(run, registry, topic, tmp_path, *, name, text):
    schema, lines = tmp_path / name, tmp_path / "lines"
    schema.write_text(text)
    lines.write_text('{"id": 1, "note": "ü"}\n')
    words = ("--file", str(lines), "--schema-registry", registry.url, "--value-schema", str(schema))
    assert run("produce", topic, *words) == (0, "", "")
    code, raw, _ = run("consume", topic, "-e", "--value-encoding", "hex")
    assert (code, raw[:10]) == (0, "0000000001")
    code, out, err = run("consume", topic, "-e", "--schema-registry", registry.url)
    assert (code, err) == (0, "")
    assert json.loads(out) == {"id": 1, "note": "ü"}
    assert registry.answer("GET", f"/subjects/{topic}-value/versions/latest", {})[0] == 200


def test_the_latest_schema_of_the_subject_or_one_by_its_id(run, registry, produce, topic):
    first = registry.register(f"{topic}-value", AVRO)
    registry.register(f"{topic}-value", AVRO.replace('"note"', '"remark"'))
    assert produce(topic, '{"id": 2, "remark": "r"}\n') == (0, "", "")
    assert produce(topic, '{"id": 1, "note": "n"}\n', "--value-schema-id", str(first)) == (0, "", "")
    _, out, _ = run("consume", topic, "-e", "--schema-registry", registry.url)
    assert sorted(json.loads(line)["id"] for line in out.splitlines()) == [1, 2]


def test_another_message_of_a_protobuf_schema(run, registry, produce, topic):
    registry.register(f"{topic}-value", PROTO, "PROTOBUF")
    assert produce(topic, '{"x": "y"}\n', "--message", "Other") == (0, "", "")
    assert json.loads(run("consume", topic, "-e", "--schema-registry", registry.url)[1]) == {"x": "y"}


def test_a_line_that_does_not_fit_is_told(produce, registry, topic):
    registry.register(f"{topic}-value", AVRO)
    code, _, err = produce(topic, '{"id": 1}\n{"id": "x"}\n')
    assert code == 1
    assert "line 2: it does not fit the Avro schema" in err


def test_a_value_without_a_schema_is_told_with_its_offset(run, registry, topic, tmp_path):
    (tmp_path / "plain").write_text("hello world\n")
    run("produce", topic, "--file", str(tmp_path / "plain"))
    code, _, err = run("consume", topic, "-e", "--schema-registry", registry.url)
    assert code == 1
    assert "the value of the record at offset 0 cannot be decoded: it begins with the byte 0x68" in err


def test_what_the_registry_says_is_told(run, registry, produce, topic, monkeypatch):
    code, _, err = produce(topic, "{}\n")
    assert code == 1
    assert f"answers 404: Subject '{topic}-value' not found." in err
    registry.user_info = "Basic dTpw"
    assert "who are you?" in produce(topic, "{}\n")[2]
    monkeypatch.setenv("SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", "u:p")
    assert "not found" in produce(topic, "{}\n")[2]
    assert "does not answer" in run("produce", topic, "--schema-registry", "http://127.0.0.1:1")[2]
    assert "not the address of a registry" in run("produce", topic, "--schema-registry", "registry")[2]
    assert "needs --schema-registry" in run("produce", topic, "--value-schema", "x.avsc")[2]
