"""Clients of schema registries in JavaScript and Go. Their packages come from npm and Go's proxy, once.

Confluent's Java serializers are not on Maven Central, so they are not among them.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tailrace.testing import Broker
from tests.parts import need_program, need_registry_node_clients

GO = Path(__file__).parent / "go"
DEADLINE_S = 300.0

pytestmark = pytest.mark.long


def run(*words: str | Path) -> Any:
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_go(name: str, folder: Path, url: str) -> Any:
    program = folder / name
    subprocess.run(
        [need_program("go"), "build", "-o", program, "."],
        cwd=GO / name,
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    return run(program, url)


def test_kafkajs(registered_broker: Broker):
    told = run("node", need_registry_node_clients() / "kafkajs.mjs", registered_broker.registry_url, "kafkajs")
    each = {"same": True, "decoded": 7, "latest": True, "found": True}
    assert told == {"avro": each, "json": each, "protobuf": each, "refused": True}


def test_confluents_javascript(registered_broker: Broker):
    told = run("node", need_registry_node_clients() / "confluent.mjs", registered_broker.registry_url, "confluent-js")
    each = {"decoded": 7, "latest": True, "versions": [1], "compatibility": "BACKWARD", "compatible": True}
    assert told == {"avro": each, "json": each, "deleted": [1]}


def test_franz_go(registered_broker: Broker, tmp_path: Path):
    told = run_go("franz", tmp_path, registered_broker.registry_url)
    assert told["versions"] == told["soft"] == told["hard"] == [1]
    assert (told["level"], told["proto"], told["types"]) == ("FULL", "PROTOBUF", 3)
    assert told["compatible"] is False
    assert all(told[name] for name in ("refused", "text", "looked", "set", "framed", "missing"))


def test_confluents_go(registered_broker: Broker, tmp_path: Path):
    told = run_go("confluent", tmp_path, registered_broker.registry_url)
    assert told == {"text": True, "versions": [1], "latest": True, "refused": True, "deleted": [1]}
