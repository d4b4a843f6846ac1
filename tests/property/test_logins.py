"""A fuzzer over all states before a login: whatever is said there, by whom and in which order, is answered as
documented, refused or a breach of the protocol; and only who has proved to know a password is ever let in."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.auth import conversations
from tailrace.broker.auth.conversations import Bearer, Doubt, Wait, hear_oauthbearer, hear_plain, hear_scram
from tailrace.broker.auth.login import Login, LoginRefusedError, Mechanism, log_in
from tailrace.broker.context import BoundListener
from tailrace.broker.roster import Roster
from tailrace.controller.image import MetadataImage, ScramCredential
from tailrace.controller.security.credentials import derive_keys, salt_password
from tailrace.controller.security.pretence import decide_pretence
from tailrace.model.errors import ProtocolError
from tailrace.model.security import ScramMechanism
from tailrace.sim.clock import SimClock
from tests.talkers import BEARER, MECHANISMS, PASSWORD, TOKEN, USER, Talker, requests_of_others

STEPS_MAX = 12
ALL = (*MECHANISMS, BEARER)
LISTENER = BoundListener("LOGIN", "127.0.0.1", 1, False)
SALT = b"salt of the test"


def credential(mechanism: ScramMechanism) -> ScramCredential:
    keys = derive_keys(mechanism, salt_password(mechanism, PASSWORD, SALT, 4096))
    return ScramCredential(SALT, keys.stored_key, keys.server_key, 4096)


IMAGE = MetadataImage("c", scram_credentials={(USER, each): credential(each) for each in ScramMechanism})
SERVICES = SimpleNamespace(
    image=IMAGE, telemetry=None, has=lambda _: False, ports=SimpleNamespace(clock=SimClock()), roster=Roster(())
)


def mechanisms(random: Random) -> dict[str, Mechanism]:
    pretence = decide_pretence(IMAGE)

    def scram(mechanism: ScramMechanism) -> Mechanism:
        def find(user: str) -> tuple[ScramCredential, bool]:
            real = IMAGE.scram_credentials.get((user, mechanism))
            return (pretence.credential(user, mechanism), False) if real is None else (real, True)

        return Mechanism(lambda: hear_scram(mechanism, find, f"{random.getrandbits(128):x}"))

    return {
        "PLAIN": Mechanism(lambda: hear_plain({USER: PASSWORD})),
        BEARER: Mechanism(lambda: hear_oauthbearer(judge)),
        **{each.mechanism_name: scram(each) for each in ScramMechanism},
    }


async def judge(token: str) -> Bearer | Doubt:
    return Bearer(USER, 1000) if token == TOKEN else Doubt("it is none")


def send(login: Login, said: bytes) -> bytes:
    """What has to be waited for is there at once."""
    answer = login.send(said)
    while isinstance(answer, Wait):
        answer = login.send(asyncio.run(answer.begin()))  # type: ignore[arg-type] # A coroutine of ours.
    return answer


def talk(talker: Talker, random: Random) -> str:
    """How it ends."""
    login = log_in(SERVICES, LISTENER, "somebody:1", mechanisms(random))  # type: ignore[arg-type]
    next(login)
    heard: bytes | None = None
    for _ in range(STEPS_MAX):
        said = talker.speak(heard)
        principal = None
        try:
            answer = send(login, said)
        except StopIteration as end:
            principal = str(end.value.principal)
        except LoginRefusedError as error:
            if error.answer:
                talker.read(said, error.answer[4:])
            return "refused"
        except ProtocolError:
            return "closed"
        if principal is not None:
            assert talker.has_proved, "somebody is let in who has not proved who it is"
            assert principal == f"User:{USER}"
            return "in"
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        heard = answer[4:]
        if not talker.is_bare:
            talker.read(said, heard)
    return "endless"


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_nothing_but_a_proof_opens_the_door(random: Random) -> None:
    talk(Talker(random, mechanisms=ALL), random)


def test_every_end_of_a_login_is_met() -> None:
    """So that the fuzzer above is one: of a thousand talks some end in each way."""
    ends = [talk(Talker(Random(seed), mechanisms=ALL), Random(-seed)) for seed in range(1000)]
    counts = {end: ends.count(end) for end in ends}
    assert counts["in"] > 50
    assert counts["refused"] > 100
    assert counts["closed"] > 100
    assert all(talk(Talker(Random(seed), is_honest=True, mechanisms=ALL), Random(seed)) == "in" for seed in range(50))
    assert len(requests_of_others()) > 60


def test_a_proof_that_nobody_looks_at_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations.hmac, "compare_digest", lambda _one, _other: True)
    with pytest.raises(AssertionError, match="has not proved"):
        all(talk(Talker(Random(seed), mechanisms=ALL), Random(-seed)) for seed in range(1000))
