"""Delegation tokens as Apache Kafka 4.3.0 has them: who may make, renew, end and see which, who comes in by one, and
what everybody else is told. `tokens/kafka.json` is what a Kafka node with the StandardAuthorizer answered.
"""

import asyncio
import json

import pytest

from tests.golden.tokens.asking import ENABLED, RECORDED, SETTINGS, Asking
from tests.unit.broker.auth.secured import SecuredWorld
from tests.unit.broker.world import Peer

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
}


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_tokens_are_kafkas(is_enabled: bool) -> None:
    kafka = {
        label: answer
        for label, answer in json.loads(RECORDED.read_text()).items()
        if label.startswith("disabled") != is_enabled
    }
    world = SecuredWorld()
    broker = await world.start(LISTENERS | SETTINGS | (ENABLED if is_enabled else {}))

    async def connect(listener: str) -> Peer:
        return Peer(*await asyncio.open_connection("127.0.0.1", world.port_of(listener)))

    asking = Asking(connect)
    try:
        ours = json.loads(json.dumps(await (asking.ask_all() if is_enabled else asking.ask_disabled())))
    finally:
        await asking.close()
        await broker.stop()
        world.ports.background.close()
    assert ours.keys() == kafka.keys()
    assert {label: (answer, kafka[label]) for label, answer in ours.items() if answer != kafka[label]} == {}
