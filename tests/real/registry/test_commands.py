"""`tailrace schema check` and `diff`: verdicts, reasons, exit codes, and who would break."""

import json
import time

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.cli import main
from tailrace.testing import Broker

from .asking import ask, avro


@pytest.fixture(scope="module")
def broker():
    with Broker(registry=True, start_timeout_s=60) as found:
        yield found


@pytest.fixture
def schema(broker, capsys):
    def run(*words: str) -> tuple[int, str]:
        options = ["--registry", broker.registry_url, "--bootstrap", broker.bootstrap]
        try:
            code = main(["schema", *words, *options])
        except SystemExit as exit_:
            code = exit_.code
        told = capsys.readouterr()
        return code, told.out + told.err

    return run


def register(broker, subject: str, schema: dict) -> None:
    assert ask(broker.registry_url, "POST", f"/subjects/{subject}/versions", schema).status == 200


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_would_break(broker, schema, tmp_path, protocol):
    topic = f"orders-{protocol}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    register(broker, f"{topic}-value", avro("id"))
    file = tmp_path / "order.avsc"
    file.write_text(
        avro("id", "note")["schema"].replace('"note", "type": "string", "default": ""', '"n", "type": "int"')
    )
    code, told = schema("check", str(file), "--subject", f"{topic}-value")
    assert (code, f"no group reads {topic} now" in told) == (1, True)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"notes-{protocol}", "group.protocol": protocol}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        code, told = schema("check", str(file), "--subject", f"{topic}-value")
        assert code == 1
        assert f"who would break: 1 group reads {topic} now\n  notes-{protocol} (1 member)" in told
        assert "READER_FIELD_MISSING_DEFAULT_VALUE" in told
        code, told = schema("check", str(file), "--subject", f"{topic}-value", "--json")
        document = json.loads(told)
        assert (code, document["compatible"], document["compatibility"]) == (1, False, "BACKWARD")
        assert document["readers"] == [{"group_id": f"notes-{protocol}", "members": 1}]
    finally:
        consumer.close()
    file.write_text(avro("id", "note")["schema"])
    code, told = schema("check", str(file), "--subject", f"{topic}-value")
    assert (code, "may be the next version" in told) == (0, True)


def test_two_versions_side_by_side(broker, schema):
    register(broker, "sides-value", avro("id"))
    code, told = schema("diff", "sides-value")
    assert (code, "no version before 1" in told) == (1, True)
    register(broker, "sides-value", avro("id", "note"))
    code, told = schema("diff", "sides-value")
    assert code == 0
    assert '+      "name": "note"' in told
    assert "BACKWARD: compatible" in told
    assert "FORWARD: compatible" in told
    assert json.loads(schema("diff", "sides-value", "1", "2", "--json")[1])["FORWARD"] == []
    assert "has no version 7; it has 1, 2" in schema("diff", "sides-value", "1", "7")[1]


def test_what_is_wrong_is_told(broker, schema, tmp_path):
    nameless = tmp_path / "schema.txt"
    nameless.write_text("?")
    assert "name it with --type" in schema("check", str(nameless), "--subject", "s")[1]
    assert "cannot read" in schema("check", str(tmp_path / "none.avsc"), "--subject", "s")[1]
    broken = tmp_path / "broken.avsc"
    broken.write_text('{"type":"strin"}')
    code, told = schema("check", str(broken), "--subject", "s")
    assert code == 1
    assert "strin" in told
    code, told = schema("check", str(broken), "--subject", "s", "--reference", "a=b")
    assert (code, "expected NAME=SUBJECT:VERSION" in told) == (1, True)
