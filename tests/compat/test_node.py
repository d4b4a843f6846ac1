"""The JavaScript clients. Their packages come from npm, into a folder that git ignores, once."""

import base64
import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.parts import need_node_clients

from .clients import DEADLINE_S, Sent
from .clients.confluent import Confluent
from .clients.corpus import START_MS, records


@pytest.fixture(scope="module")
def run_script(tmp_path_factory: pytest.TempPathFactory, bootstrap: str) -> Callable[..., dict[str, Any]]:
    """Run one of the scripts against the broker with a plan of records; return what it printed."""
    folder = need_node_clients()
    plan = tmp_path_factory.mktemp("plan") / "records.json"

    def run(script: str, topic: str, sent: list[Sent]) -> dict[str, Any]:
        plan.write_text(json.dumps([_as_json(record) for record in sent]))
        done = subprocess.run(
            ["node", folder / script, bootstrap, topic, plan],
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def _as_json(record: Sent) -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    return {
        "key": text(record.key),
        "value": text(record.value),
        "headers": [(name, text(value)) for name, value in record.headers],
        "timestamp_ms": record.timestamp_ms,
    }


def test_kafkajs_administers_and_writes(
    bootstrap: str, run_script: Callable[..., dict[str, Any]], fresh_name: Callable[[], str]
):
    # kafkajs keeps headers in an object: a name can stand there once.
    sent = [record for record in records() if len(dict(record.headers)) == len(record.headers)]
    topic, count = fresh_name(), len(sent)
    told = run_script("kafkajs.mjs", topic, sent)
    assert (told["created"], told["again"]) == (True, False)
    # Longer than the records are old: else a look at retention in the midst of this takes them.
    assert (told["retention"], told["partitions"]) == ("3600000000000", 2)
    expected = [offset for start in range(0, 3 * count, count) for offset in (start, start + 3)]
    assert told["offsets"] == [*expected, None, None]
    assert (told["byTime"], told["low"], told["lowAfterDelete"]) == (2, 0, 1)
    assert told["brokers"] == [bootstrap]
    received = Confluent().read(bootstrap, topic, 4 * count - 1, offset=1)
    assert [record.as_sent for record in received] == (sent * 4)[1:]


def test_platformatic_writes_and_reads(
    bootstrap: str, run_script: Callable[..., dict[str, Any]], fresh_name: Callable[[], str]
):
    # It reads a record of no value as an empty one, so the plan has values only.
    sent = [Sent(b"key-%d" % number, b"value %d" % number, (), START_MS + number) for number in range(50)]
    told = run_script("platformatic.mjs", fresh_name(), sent)
    assert (told["partitions"], told["listed"], told["left"]) == ([1, 2], True, False)
    assert told["retention"] == "604800000"
    assert told["offsets"] == [0, 50, 100, 150, 200]
    assert told["end"] == 250
    assert [base64.b64decode(value) for value in told["values"]] == [record.value for record in sent] * 5
