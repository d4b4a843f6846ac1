"""Somebody who does not exist cannot be told from a user by what a SCRAM login asks."""

import os
from collections import Counter
from random import Random

import pytest

from tailrace.controller.image import MetadataImage, ScramCredential
from tailrace.controller.security.pretence import STEP_USERS, count_kinds, decide_pretence
from tailrace.model.security import ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
RANDOM = Random(7)


def text_salt() -> bytes:
    """As Kafka's tools make it: a number of 130 bits with digits and small letters."""
    number, text = RANDOM.getrandbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        text = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + text
    return text.encode()


def credential(salt: bytes | None = None, iterations: int = 4096) -> ScramCredential:
    return ScramCredential(salt or os.urandom(20), os.urandom(32), os.urandom(32), iterations)


def image(users: dict[str, ScramCredential], mechanism: ScramMechanism = SHA_256) -> MetadataImage:
    return MetadataImage("c", scram_credentials={(user, mechanism): each for user, each in users.items()})


def made_up(state: MetadataImage, count: int, mechanism: ScramMechanism = SHA_256) -> list[ScramCredential]:
    pretence = decide_pretence(state)
    return [pretence.credential(f"nobody-{number}", mechanism) for number in range(count)]


@pytest.mark.parametrize("salt", [b"0a1b2c3d4e5f6g7h8i9j0k1l2m", bytes(range(200, 232)), bytes(range(64)) * 3])
def test_a_made_up_salt_looks_like_those_of_the_cluster(salt: bytes):
    (one,) = made_up(image({"alice": credential(salt, 8192)}), 1)
    assert len(one.salt) == len(salt)
    assert one.salt.isalnum() == salt.isalnum()
    assert one.iterations == 8192


def test_each_kind_is_as_frequent_as_among_the_users():
    users = {f"many-{number}": credential() for number in range(30)}
    users |= {f"few-{number}": credential(iterations=16384) for number in range(10)}
    seen = Counter(each.iterations for each in made_up(image(users), 4000))
    assert set(seen) == {4096, 16384}
    assert 0.2 < seen[16384] / seen.total() < 0.3


def test_salts_of_text_are_numbers_that_kafka_could_have_drawn():
    """Of 26 digits the first is never large, and never a zero."""
    users = {f"u{number}": credential(text_salt()) for number in range(50)}
    salts = [each.salt for each in made_up(image(users), 2000)]
    assert all(int(salt, 36) < 1 << 130 and not salt.startswith(b"0") for salt in salts)
    assert {len(salt) for salt in salts} == {len(each.salt) for each in users.values()}
    assert len(set(salts)) == 2000


def test_a_name_is_always_asked_the_same_by_all_brokers():
    users = {f"u{number}": credential(iterations=4096 << number % 2) for number in range(20)}
    backwards = dict(reversed(users.items()))
    assert made_up(image(users), 50) == made_up(image(backwards), 50)
    assert decide_pretence(image(users)).credential("x", SHA_512) == decide_pretence(image({})).credential("x", SHA_512)


def test_few_names_are_asked_otherwise_when_a_user_comes():
    """Else a name whose salt changes would be nobody's."""
    users = {f"u{number}": credential(iterations=4096 << number % 2) for number in range(20)}
    before = made_up(image(users), 1000)
    largest = ScramCredential(os.urandom(20), b"", b"\xff" * 32, 8192)
    after = made_up(image(users | {"new": largest}), 1000)
    assert sum(one != other for one, other in zip(before, after, strict=True)) < 100


def test_many_users_are_counted_in_steps():
    users = {f"u{number}": credential() for number in range(STEP_USERS * 3)}
    assert sum(1 for _ in count_kinds(image(users))) == 3


def test_nothing_of_it_is_shown():
    state = image({"alice": credential()})
    shown = repr(vars(decide_pretence(state)))
    secret = next(iter(state.scram_credentials.values())).server_key
    assert repr(secret)[2:-1] not in shown
