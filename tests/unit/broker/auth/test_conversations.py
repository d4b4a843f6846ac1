"""What a broker asks in SCRAM and OAUTHBEARER: the examples of the RFCs, our own client's side, and those who try
something else.
"""

from __future__ import annotations

import asyncio
import itertools
from base64 import b64decode, b64encode

import pytest

from tailrace.broker.auth.conversations import (
    Accepted,
    Bearer,
    Conversation,
    Doubt,
    RefusalError,
    TokenLogin,
    Wait,
    hear_oauthbearer,
    hear_plain,
    hear_scram,
)
from tailrace.client.security.mechanisms import speak_oauthbearer, speak_scram
from tailrace.controller.image import MetadataImage, ScramCredential
from tailrace.controller.security.credentials import derive_keys, salt_password
from tailrace.controller.security.pretence import decide_pretence
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


# --- OAUTHBEARER


def speak(message: bytes, verdict: Bearer | Doubt) -> tuple[list[str], list[bytes], Accepted | KafkaError]:
    """Which tokens were judged, what was answered, and how it ended."""
    asked: list[str] = []

    async def judge(token: str) -> Bearer | Doubt:
        asked.append(token)
        return verdict

    conversation = hear_oauthbearer(judge)
    assert next(conversation) == b""
    answers: list[bytes] = []
    said: object = message
    try:
        while True:
            answer = conversation.send(said)
            if isinstance(answer, Wait):
                said = asyncio.run(answer.begin())
            else:
                answers.append(answer)
                said = b"\1"
    except StopIteration as end:
        return asked, answers, end.value
    except KafkaError as error:
        return asked, answers, error


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\1auth=Bearer a.b.c\1\1",
        b"n,a=alice,\1auth=bearer   a.b.c\1\1",
        b"n,,\1auth=BEARER a.b.c\1logicalCluster=x y\1traceId=1=2\1\1",
        b"n,,\1host=h\1auth=Bearer a.b.c\1\1",
    ],
)
def test_a_bearer_is_who_the_token_says(message: bytes):
    assert speak(message, Bearer("alice", 5000)) == (["a.b.c"], [], Accepted("alice", b"", 5000))


def test_our_own_client_is_understood():
    message = next(speak_oauthbearer("a.b.c", [("traceId", "7")]))
    assert speak(message, Bearer("alice", 1))[2] == Accepted("alice", b"", 1)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1",
        b"n,,",
        b"n,,\1\1",
        b"n,,\1auth=Bearer a.b.c\1",
        b"n,,\1auth=Bearer a.b.c",
        b"y,,\1auth=Bearer a.b.c\1\1",
        b"p=tls-unique,,\1auth=Bearer a.b.c\1\1",
        b"n,\1auth=Bearer a.b.c\1\1",
        b"n,,\1auth=Basic a.b.c\1\1",
        b"n,,\1auth=Bearer\1\1",
        b"n,,\1auth=Bearer a b\1\1",
        b"n,,\1auth=Bearer a.b.c\1\1\1",
        b"n,,\1auth=Bearer a.b.c\1k=\1\1",
        b"n,,\1auth=Bearer a.b.c\x01k1=v\1\1",
        b"n,,\1auth=Bearer a.b.c\1k=\xc3\xa9\1\1",
        b"n,a==41,\1auth=Bearer a.b.c\1\1",
        b"\xff\xfe",
        b"\0alice\0secret",
        b"n,,\1" + b"a=b\1" * 100_000,
    ],
)
def test_what_is_not_of_oauthbearer_is_not_judged(message: bytes):
    asked, answers, error = speak(message, Bearer("alice", 1))
    assert (asked, answers) == ([], [])
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert error.message.endswith("SASL mechanism OAUTHBEARER")


def test_a_doubtful_token_takes_one_round_more_and_the_client_is_not_told_why():
    _, answers, error = speak(b"n,,\1auth=Bearer a.b.c\1\1", Doubt("it has expired"))
    assert answers == [b'{"status":"invalid_token"}']
    assert isinstance(error, RefusalError)
    assert error.message == '{"status":"invalid_token"}'
    assert error.cause == "its token is refused: it has expired"


def test_somebody_else_than_the_token_says():
    _, answers, error = speak(b"n,a=root,\1auth=Bearer a.b.c\1\1", Bearer("alice", 1))
    assert answers == []
    assert isinstance(error, KafkaError)
    assert "authorization id" in error.message


@pytest.mark.parametrize(
    "message",
    [
        CLIENT_FIRST + b",a=" * 170_000,
        b"n,,n=" + b"x" * 500_000 + b",r=abc",
        b"n,,n=" + b"=2C" * 170_000 + b",r=abc",
    ],
)
def test_messages_longer_than_any_name_are_not_looked_at(message):
    """The first of them held the loop for 300 ms, and took 76 MB."""
    refused([message])
    refused([CLIENT_FIRST, message])
    conversation = hear_plain({USER: PASSWORD})
    next(conversation)
    with pytest.raises(KafkaError, match="more than 16384"):
        conversation.send(b"\0" * 500_000)


# ---- delegation tokens

TOKEN, TOKEN_PASSWORD = "6xQbRHgCT3-6bS8sG9M0rw", "aGFuZCBtZSB0aGF0"


def listening_for_tokens(owner: str | None = "alice") -> Conversation:
    """There is one token, which may be nobody's any more, and no user."""

    async def make_credential() -> ScramCredential:
        raise AssertionError("the test makes it")

    def find_token(_token_id: str) -> TokenLogin:
        return TokenLogin(make_credential, owner, 5000)

    def find(_user: str) -> tuple[ScramCredential, bool]:
        return credential(SHA_256, TOKEN_PASSWORD), False

    conversation = hear_scram(SHA_256, find, SERVER_NONCE, find_token)
    next(conversation)
    return conversation


def first_answer(conversation: Conversation, message: bytes) -> bytes:
    """What is said to the first message, once the credential was waited for."""
    answer = conversation.send(message)
    assert isinstance(answer, Wait)
    answer = conversation.send(credential(SHA_256, TOKEN_PASSWORD))
    assert isinstance(answer, bytes)
    return answer


def test_whoever_has_a_token_is_its_owner():
    conversation = listening_for_tokens()
    client = speak_scram("sha256", TOKEN, TOKEN_PASSWORD, "abc", is_by_token=True)
    accepted = finish(conversation, client.send(first_answer(conversation, next(client))))
    assert accepted == Accepted("alice", accepted.last, 5000, is_by_token=True)
    with pytest.raises(StopIteration):
        client.send(accepted.last)


@pytest.mark.parametrize(("owner", "password"), [(None, TOKEN_PASSWORD), ("alice", "another")])
def test_no_token_and_a_wrong_password_are_refused_alike(owner, password):
    conversation = listening_for_tokens(owner)
    client = speak_scram("sha256", TOKEN, password, "abc", is_by_token=True)
    proof = client.send(first_answer(conversation, next(client)))
    with pytest.raises(KafkaError) as caught:
        conversation.send(proof)
    assert caught.value.message.endswith("invalid credentials with SASL mechanism SCRAM-SHA-256")


@pytest.mark.parametrize(
    "extension", [b"", b",tokenauth=false", b",tokenauth=", b",tokenauth=true,tokenauth=no", b",x=true"]
)
def test_a_token_is_none_unless_it_says_so(extension):
    conversation = listening_for_tokens()
    answer = conversation.send(f"n,,n={TOKEN},r=abc".encode() + extension)
    assert isinstance(answer, bytes)
    client = speak_scram("sha256", TOKEN, TOKEN_PASSWORD, "abc")
    next(client)
    with pytest.raises(KafkaError):
        conversation.send(client.send(answer))
