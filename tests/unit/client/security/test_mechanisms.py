"""What is said in each mechanism, against the examples of the RFCs and against a server that knows the rules."""

import pytest

from tailrace.client.security.mechanisms import Conversation, speak_oauthbearer, speak_plain, speak_scram
from tailrace.model.errors import ErrorCode, KafkaError

from .scram_server import ScramServer

NONCE = "fyko+d2lbbFgONRv9qkxdawL"
RFC_5802 = (
    "sha1",
    NONCE,
    "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = (
    "sha256",
    "rOprNGfwEbeRWgbNEkqO",
    "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def finish(conversation: Conversation, last: bytes) -> None:
    with pytest.raises(StopIteration):
        conversation.send(last)


@pytest.mark.parametrize("example", [RFC_5802, RFC_7677], ids=["RFC 5802", "RFC 7677"])
def test_scram_speaks_as_in_the_rfcs(example: tuple[str, ...]):
    hash_name, nonce, client_first, server_first, client_final, server_final = example
    conversation = speak_scram(hash_name, "user", "pencil", nonce)
    assert next(conversation) == client_first.encode()
    assert conversation.send(server_first.encode()) == client_final.encode()
    finish(conversation, server_final.encode())


@pytest.mark.parametrize("hash_name", ["sha256", "sha512"])
@pytest.mark.parametrize("username", ["alice", "a,b=c", "Ünal"])
def test_scram_convinces_a_server_and_is_convinced(hash_name: str, username: str):
    server = ScramServer(hash_name, {username: "geheim, ß"})
    conversation = speak_scram(hash_name, username, "geheim, ß", NONCE)
    challenge = server.handle_first(next(conversation))
    verdict = server.handle_final(conversation.send(challenge))
    finish(conversation, verdict)


def test_scram_does_not_convince_with_another_password():
    server = ScramServer("sha256", {"alice": "right"})
    conversation = speak_scram("sha256", "alice", "wrong", NONCE)
    challenge = server.handle_first(next(conversation))
    with pytest.raises(PermissionError):
        server.handle_final(conversation.send(challenge))


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        ("r=somebody-elses-nonce,s=QSXCR+Q6sek8bf92,i=4096", "perhaps to an earlier one"),
        (f"r={NONCE},s=QSXCR+Q6sek8bf92,i=4096", "perhaps to an earlier one"),
        (f"r={NONCE}x,s=QSXCR+Q6sek8bf92,i=1", "asks for 1 iterations"),
        (f"r={NONCE}x,s=QSXCR+Q6sek8bf92,i=2000000000", "asks for 2000000000 iterations"),
        (f"r={NONCE}x,s=QSXCR+Q6sek8bf92", "not one of SCRAM"),
        (f"r={NONCE}x,s=***,i=4096", "not one of SCRAM"),
        (f"r={NONCE}x,s=QSXCR+Q6sek8bf92,i=many", "not one of SCRAM"),
        (f"m=x,r={NONCE}x,s=QSXCR+Q6sek8bf92,i=4096", "demands an extension"),
        ("e=unknown-user", "refuses the user: unknown-user"),
        ("\udcff", "not text"),
    ],
)
def test_scram_refuses_a_server_that_breaks_the_rules(challenge: str, reason: str):
    conversation = speak_scram("sha256", "user", "pencil", NONCE)
    next(conversation)
    with pytest.raises(KafkaError, match=reason) as raised:
        conversation.send(challenge.encode("utf-8", "surrogateescape"))
    assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("verdict", "reason"), [("v=AAAA", "not the broker that it claims to be"), ("e=invalid-proof", "invalid-proof")]
)
def test_scram_refuses_a_server_that_does_not_know_the_password(verdict: str, reason: str):
    server = ScramServer("sha256", {"alice": "secret"})
    conversation = speak_scram("sha256", "alice", "secret", NONCE)
    conversation.send(server.handle_first(next(conversation)))
    with pytest.raises(KafkaError, match=reason):
        conversation.send(verdict.encode())


def test_plain():
    conversation = speak_plain("alice", "geheim ß")
    assert next(conversation) == "\0alice\0geheim ß".encode()
    finish(conversation, b"")


def test_oauthbearer():
    conversation = speak_oauthbearer("tok", [("logicalCluster", "lkc-1")])
    assert next(conversation) == b"n,,\1auth=Bearer tok\1logicalCluster=lkc-1\1\1"
    finish(conversation, b"")


def test_oauthbearer_asks_why_it_is_refused():
    conversation = speak_oauthbearer("tok")
    assert next(conversation) == b"n,,\1auth=Bearer tok\1\1"
    assert conversation.send(b'{"status":"invalid_token"}') == b"\1"
    with pytest.raises(KafkaError, match=r"refuses the token: .*invalid_token"):
        conversation.send(b"")
