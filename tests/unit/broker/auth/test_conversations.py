"""What a broker asks in SCRAM: the examples of the RFCs, our own client's side, and those who try something else."""

from __future__ import annotations

import itertools
from base64 import b64decode, b64encode

import pytest

from tailrace.broker.auth.conversations import Accepted, Conversation, hear_scram
from tailrace.client.security.mechanisms import speak_scram
from tailrace.controller.image import MetadataImage, ScramCredential
from tailrace.controller.security.credentials import decide_pretence, derive_keys, salt_password
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256
# RFC 7677, section 3.
USER, PASSWORD, SALT = "user", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
BOTH = CLIENT_NONCE + SERVER_NONCE
CLIENT_FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
SERVER_FIRST = f"r={BOTH},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
CLIENT_FINAL = f"c=biws,r={BOTH},p={PROOF}".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(mechanism: ScramMechanism, password: str, iterations: int = 4096) -> ScramCredential:
    keys = derive_keys(mechanism, salt_password(mechanism, password, SALT, iterations))
    return ScramCredential(SALT, keys.stored_key, keys.server_key, iterations)


def listening(mechanism: ScramMechanism = SHA_256, users: tuple[str, ...] = (USER,)) -> Conversation:
    credentials = {user: credential(mechanism, PASSWORD) for user in users}
    image = MetadataImage("c", scram_credentials={(user, mechanism): each for user, each in credentials.items()})
    pretence = decide_pretence(image)

    def find(user: str) -> tuple[ScramCredential, bool]:
        real = credentials.get(user)
        return (pretence.credential(user, mechanism), False) if real is None else (real, True)

    conversation = hear_scram(mechanism, find, SERVER_NONCE)
    next(conversation)
    return conversation


def finish(conversation: Conversation, message: bytes) -> Accepted:
    with pytest.raises(StopIteration) as end:
        conversation.send(message)
    accepted: Accepted = end.value.value
    return accepted


def test_the_example_of_the_rfc():
    conversation = listening()
    assert conversation.send(CLIENT_FIRST) == SERVER_FIRST
    assert finish(conversation, CLIENT_FINAL) == Accepted("user", SERVER_FINAL)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "=2C", "Zoë", "x" * 5000])
def test_our_own_client_is_let_in(mechanism, user):
    conversation = listening(mechanism, (user,))
    client = speak_scram(mechanism.hash_name, user, PASSWORD, "abc")
    last = client.send(conversation.send(next(client)))
    accepted = finish(conversation, last)
    assert accepted.user == user
    with pytest.raises(StopIteration):
        client.send(accepted.last)


def refused(messages: list[bytes]) -> str:
    """The text of the refusal, which comes with the last of the messages."""
    conversation = listening()
    for message in messages[:-1]:
        conversation.send(message)
    with pytest.raises(KafkaError) as caught:
        conversation.send(messages[-1])
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    return caught.value.message


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,m=ext,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        CLIENT_FIRST + b"\0",
    ],
)
def test_first_messages_that_are_refused(message):
    assert "SCRAM-SHA-256" in refused([message])


@pytest.mark.parametrize(
    "message",
    [
        b"",
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),
        CLIENT_FINAL.replace(b"biws", b"!!!!"),
        f"c=biws,r={CLIENT_NONCE},p={PROOF}".encode(),
        f"c=biws,r={BOTH}x,p={PROOF}".encode(),
        f"c=biws,r={BOTH}".encode(),
        f"c=biws,r={BOTH},p=".encode(),
        f"c=biws,r={BOTH},p={PROOF[:-4]}".encode(),
        f"c=biws,r={BOTH},p={b64encode(bytes(32)).decode()}".encode(),
        f"c=biws,r={BOTH},p={b64encode(b64decode(PROOF) + bytes(1)).decode()}".encode(),
        CLIENT_FINAL.replace(b",p=", b",tokenauth=true,p="),
        CLIENT_FINAL.replace(b",p=", b",x=y,p="),
        CLIENT_FIRST,
    ],
)
def test_proofs_that_are_refused(message):
    refused([CLIENT_FIRST, message])


def test_every_byte_of_a_proof_counts():
    for place in range(32):
        proof = bytearray(b64decode(PROOF))
        proof[place] ^= 1
        refused([CLIENT_FIRST, f"c=biws,r={BOTH},p={b64encode(proof).decode()}".encode()])


def test_a_proof_cannot_be_used_again():
    """What was overheard fits another nonce of the broker no more."""
    conversation = hear_scram(SHA_256, lambda _user: (credential(SHA_256, PASSWORD), True), "another")
    next(conversation)
    conversation.send(CLIENT_FIRST)
    with pytest.raises(KafkaError):
        conversation.send(CLIENT_FINAL)


def test_who_does_not_exist_cannot_be_told_from_a_wrong_password():
    answers = {}
    for user, nonce in itertools.product(("user", "nobody", "nobody else"), ("abc", "def")):
        conversation = listening()
        client = speak_scram("sha256", user, "wrong", nonce)
        challenge = conversation.send(next(client))
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        with pytest.raises(KafkaError) as caught:
            conversation.send(client.send(challenge))
        answers.setdefault(user, set()).add((fields["s"], fields["i"], caught.value.message))
    # Asked again, each has the salt that it had; nobody's is another one's; and all else is the same.
    assert [len(each) for each in answers.values()] == [1, 1, 1]
    (known,), (unknown,), (other,) = answers.values()
    assert known[1:] == unknown[1:] == other[1:]
    assert len({known[0], unknown[0], other[0]}) == 3


def test_no_proof_fits_a_credential_that_is_pretended():
    """Even if somebody knew all of it."""
    pretended = credential(SHA_256, PASSWORD)
    conversation = hear_scram(SHA_256, lambda _user: (pretended, False), SERVER_NONCE)
    next(conversation)
    conversation.send(CLIENT_FIRST)
    with pytest.raises(KafkaError):
        conversation.send(CLIENT_FINAL)


def test_a_credential_tells_nothing_of_itself():
    assert repr(credential(SHA_256, PASSWORD)) == "ScramCredential(4096 iterations)"
