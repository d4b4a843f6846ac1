"""The fuzzer of logins against a whole broker on simulated ports: what is said is cut anywhere, sizes lie, talkers stop
in the middle, stay silent or leave, and many stand at the door at once; after a login others go on with a second one.

Nothing of it reaches the dispatcher before a login, nothing is logged as an error, and nobody is left at the door once
the time for a login is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from itertools import pairwise
from random import Random
from struct import pack
from typing import Any

import pytest

from tailrace.broker.serving.acceptor import Acceptor
from tailrace.broker.serving.dispatch import Dispatcher, RequestOrigin
from tailrace.controller.security.credentials import salt_password
from tailrace.model.security import ScramMechanism
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.apis.security import AlterUserScramCredentialsRequest
from tests.talkers import PASSWORD, USER, Talker
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import Peer

GUARDED = ("LOGIN", "SESSIONS")
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
LOGIN_MAX_SECONDS = 3.0
RECEIVE_MAX_BYTES = 30_000
SETTINGS = {
    "listeners": "PLAINTEXT://node-1:9092,LOGIN://node-1:9095,SESSIONS://node-1:9096,CONTROLLER://node-1:9093",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT,SESSIONS:SASL_PLAINTEXT"
    ),
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "connection.login.max.ms": str(int(LOGIN_MAX_SECONDS * 1000)),
    "sasl.server.max.receive.size": str(RECEIVE_MAX_BYTES),
    **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": JAAS for name in GUARDED},
    **{
        f"listener.name.sessions.{name}.connections.max.reauth.ms": "60000"
        for name in ("plain", "scram-sha-256", "scram-sha-512")
    },
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
}
TALKERS = 150
STEPS_MAX = 12


class Line:
    """A simulated connection; what is sent is cut anywhere."""

    def __init__(self, peer: Peer, random: Random) -> None:
        self._peer = peer
        self._random = random

    async def send(self, data: bytes) -> None:
        cuts = sorted(self._random.randrange(len(data) + 1) for _ in range(2))
        for start, end in pairwise([0, *cuts, len(data)]):
            self._peer.writer.write(data[start:end])
            await asyncio.sleep(self._random.random() * 0.02)

    async def receive(self) -> bytes:
        """A frame without its size. Raises EOFError, ConnectionError or TimeoutError: the talk is over."""
        return await self._peer.receive_frame(2 * LOGIN_MAX_SECONDS)


class Crowd:
    """What has happened to all who came."""

    def __init__(self, world: ClusterWorld, random: Random) -> None:
        self.proved_count = self.closed_count = self.answers_count = 0
        self._world = world
        self._random = random

    async def talk(self, listener: str) -> None:
        random = Random(self._random.getrandbits(64))
        await asyncio.sleep(random.random() * 2)
        line = Line(await self._world.connect(1, listener), random)
        try:
            await self._log_in(line, random)
            if listener == "SESSIONS":
                await asyncio.sleep(1 + random.random())
                await self._log_in(line, random, is_in=True)
        except (EOFError, ConnectionError, TimeoutError):
            self.closed_count += 1

    async def _log_in(self, line: Line, random: Random, *, is_in: bool = False) -> None:
        """Until the broker closes, or it has said what proves who it is."""
        talker, heard = Talker(random), None
        for _ in range(STEPS_MAX):
            said = talker.speak(heard)
            size = len(said)
            if random.random() < 0.05:
                size = random.choice([-1, -(1 << 31), RECEIVE_MAX_BYTES + 1, (1 << 31) - 1, size + 5, 0])
            self.proved_count += talker.has_proved and not is_in
            await line.send(pack(">i", size) + said)
            if random.random() < 0.03:
                await asyncio.sleep(random.random() * 2 * LOGIN_MAX_SECONDS)
            heard = await line.receive()
            self.answers_count += 1
            if not is_in and not talker.is_bare:
                talker.read(said, heard)
            if talker.has_proved:
                return


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_whatever_is_said_at_the_door(seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    served: Counter[str] = Counter()
    dispatch, admit = Dispatcher.dispatch, Acceptor.admit

    def note_request(self: Dispatcher, frame: memoryview, origin: RequestOrigin) -> object:
        served[str(origin.principal)] += origin.listener.name in GUARDED
        return dispatch(self, frame, origin)

    def note_admission(self: Acceptor, *arguments: Any) -> None:
        served["admitted"] += 1
        admit(self, *arguments)

    monkeypatch.setattr(Dispatcher, "dispatch", note_request)
    monkeypatch.setattr(Acceptor, "admit", note_admission)
    caplog.set_level(logging.WARNING)
    crowd_at_the_door(seed, served)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR or each.exc_info] == []


@simulated
async def crowd_at_the_door(seed: int, served: Counter[str]) -> None:
    async with running_cluster("broker,controller", settings=SETTINGS) as world:
        await set_scram(world)
        (broker,) = world.running
        crowd = Crowd(world, Random(seed))
        await asyncio.gather(*(crowd.talk(name) for _ in range(TALKERS) for name in GUARDED))
        # Of all who came some were let in, and all of them had proved who they are.
        assert TALKERS // 10 < served["admitted"] <= crowd.proved_count
        assert crowd.closed_count > TALKERS // 2
        assert crowd.answers_count > TALKERS
        # Whoever goes on behind a login is served as whom it has logged in; nobody else is.
        assert served.keys() <= {"admitted", "User:ANONYMOUS", f"User:{USER}"}
        assert not served["User:ANONYMOUS"]
        assert served[f"User:{USER}"]
        peer = await world.connect(1)
        assert (await peer.request(MetadataRequest(topics=[]), 4)).controller_id == 1
        await asyncio.sleep(LOGIN_MAX_SECONDS + 1)
        assert [each for acceptor in broker.acceptors for each in acceptor._at_the_door] == []


async def set_scram(world: ClusterWorld) -> None:
    peer, salt = await world.connect(1), b"salt of the test"
    for mechanism in ScramMechanism:
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=USER,
            mechanism=mechanism,
            iterations=4096,
            salt=salt,
            salted_password=salt_password(mechanism, PASSWORD, salt, 4096),
        )
        answer = await peer.request(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        assert answer.results[0].error_code == 0
