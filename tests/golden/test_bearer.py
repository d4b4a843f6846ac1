"""Logins by OAUTHBEARER as Apache Kafka 4.3.0 has them: which tokens and which messages are let in, what the others are
told, step by step, and how long a session lasts. `bearer/kafka.json` is what a Kafka node answered whose validator read
the same kind of keys.
"""

import asyncio
import json

from tests.golden.bearer.asking import RECORDED, SETTINGS, Asking
from tests.issuer import SigningKey, key_set
from tests.unit.broker.auth.secured import SecuredWorld
from tests.unit.broker.world import Peer

LISTENERS = {"listeners": "INSIDE://127.0.0.1:0", "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT"}
# What is told otherwise here, and why.
DEPARTURES = {
    "expired within the skew": "Kafka lets it in, and hangs up at once; here it has the skew for a new login",
    "another scheme": "Kafka hangs up without a word",
    "after a challenge: a token": "Kafka takes any number of guesses in one login, without its delay",
    "a request after a challenge": "Kafka answers any API before a login, by ILLEGAL_SASL_STATE; here it is refused",
}


async def test_logins_by_tokens_are_kafkas() -> None:
    kafka = json.loads(RECORDED.read_text())
    key = SigningKey("first")
    world = SecuredWorld()
    file = world.disk.open("/keys.json", create=True)
    file.append([key_set(key)])
    broker = await world.start(LISTENERS | SETTINGS | {"sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json"})

    async def connect() -> Peer:
        return Peer(*await asyncio.open_connection("127.0.0.1", world.port_of("INSIDE")))

    try:
        ours = json.loads(json.dumps(await Asking(connect, key).ask_all()))
    finally:
        await broker.stop()
        world.ports.background.close()
    assert ours.keys() == kafka.keys()
    different = {label: (answer, kafka[label]) for label, answer in ours.items() if answer != kafka[label]}
    assert different.keys() == DEPARTURES.keys(), different
