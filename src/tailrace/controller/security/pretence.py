"""What somebody who does not exist is asked with in a SCRAM login, so that it cannot be told from what a user is asked
with.

It is always the same for one name, on all brokers, and of the kinds that the users of that mechanism have: iterations,
length and letters of the salt, each kind as often as among the users. So neither one answer nor many of them say who is
there. It follows from secrets of the cluster: of each kind the least key of all its users, which nobody is ever
shown. A user who comes or goes is rarely that one, and the answers stay as they are.
"""

from __future__ import annotations

import hmac
from collections.abc import Generator, Mapping
from math import log
from typing import NamedTuple

from tailrace.controller.image import MetadataImage, ScramCredential
from tailrace.controller.security.credentials import ITERATIONS_MIN
from tailrace.model.security import ScramMechanism

STEP_USERS = 500
# More kinds are nobody's; each costs a microsecond of every login.
_KINDS_MAX = 16
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"
# Kafka's own tools write a number below this with these digits, and take that as a salt.
_TEXT_SALT_MAX = 1 << 130
_NOBODY_S_SALT_BYTES = 20


class _Kind(NamedTuple):
    iterations: int
    salt_bytes: int
    is_text: bool


class _Share(NamedTuple):
    kind: _Kind
    user_count: int
    secret: bytes

    def __repr__(self) -> str:
        return f"_Share({self.kind}, {self.user_count})"


class Pretence:
    def __init__(self, shares: Mapping[int, list[_Share]], otherwise: _Share) -> None:
        self._shares = shares  # By mechanism.
        self._otherwise = [otherwise]

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """No proof fits it."""
        name, asked = mechanism.hash_name, b"pretended\0" + user.encode()
        drawn = [
            (share, hmac.digest(share.secret, asked, name)) for share in self._shares.get(mechanism, self._otherwise)
        ]
        # The greatest of these is a share's as often as its users are many, and only those change sides for whom
        # another one becomes greater (rendezvous hashing).
        share, draw = max(drawn, key=lambda each: _rank(each[0].user_count, each[1]))
        salt = hmac.digest(share.secret, b"salt\0" + draw, "sha512")
        return ScramCredential(
            salt=_shape(salt, share.kind),
            stored_key=hmac.digest(share.secret, b"stored\0" + draw, name),
            server_key=hmac.digest(share.secret, b"server\0" + draw, name),
            iterations=share.kind.iterations,
        )


def decide_pretence(image: MetadataImage) -> Pretence:
    steps = count_kinds(image)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            pretence: Pretence = end.value
            return pretence


def count_kinds(image: MetadataImage) -> Generator[None, None, Pretence]:
    """The same in steps of less than a millisecond, of `STEP_USERS` each."""
    counts: dict[int, dict[_Kind, tuple[int, bytes]]] = {}
    for number, ((_user, mechanism), credential) in enumerate(image.scram_credentials.items()):
        if number % STEP_USERS == STEP_USERS - 1:
            yield
        salt = credential.salt
        kind = _Kind(credential.iterations, len(salt), not salt.translate(None, _DIGITS))
        kinds = counts.setdefault(mechanism, {})
        count, least = kinds.get(kind, (0, credential.server_key))
        kinds[kind] = (count + 1, min(least, credential.server_key))
    shares = {
        mechanism: sorted((_Share(kind, *found) for kind, found in kinds.items()), key=_order)[:_KINDS_MAX]
        for mechanism, kinds in counts.items()
    }
    # Where a mechanism has no users at all there is nobody to be told from.
    return Pretence(shares, _Share(_Kind(ITERATIONS_MIN, _NOBODY_S_SALT_BYTES, False), 1, image.cluster_id.encode()))


def _order(share: _Share) -> tuple[int, _Kind]:
    return -share.user_count, share.kind


def _rank(weight: int, draw: bytes) -> float:
    return weight / -log((int.from_bytes(draw[:6], "big") + 0.5) / (1 << 48))


def _shape(drawn: bytes, kind: _Kind) -> bytes:
    size = kind.salt_bytes
    if not kind.is_text:
        return (drawn * (size // len(drawn) + 1))[:size]
    # No digit before the first, and no number that Kafka's tools could not have drawn.
    least, end = len(_DIGITS) ** max(size - 1, 0), len(_DIGITS) ** size
    if least < _TEXT_SALT_MAX < end:
        end = _TEXT_SALT_MAX
    number = least + int.from_bytes(drawn * (size // len(drawn) + 1), "big") % (end - least)
    digits = bytearray(size)
    for position in reversed(range(size)):
        number, digit = divmod(number, len(_DIGITS))
        digits[position] = _DIGITS[digit]
    return bytes(digits)
