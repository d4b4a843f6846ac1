"""`tailrace token`, against a broker with a login."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.testing import Broker

Run = Callable[..., tuple[int, str, str]]
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "listeners": "INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.inside.plain.sasl.jaas.config": f'{MODULE} required user_alice="a" user_bob="b";',
    "delegation.token.secret.key": "a key",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


@pytest.fixture
def run(broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """As somebody: run("alice", "token", "list")."""
    common = "security.protocol=SASL_PLAINTEXT\n"
    for name in ("alice", "bob"):
        login = f'sasl.mechanism=PLAIN\nsasl.jaas.config={MODULE} required username="{name}" password="{name[0]}";\n'
        (tmp_path / name).write_text(common + login)

    def run_command(who: str, *words: str) -> tuple[int, str, str]:
        if who == "guest":
            (tmp_path / who).write_text(common + (tmp_path / "login").read_text())
        try:
            code = main([*words, "--bootstrap", broker.bootstrap, "--command-config", str(tmp_path / who)])
        except SystemExit as exit_:
            code = exit_.code
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


def test_a_token_is_made_listed_renewed_and_ended(run: Run):
    code, out, err = run("alice", "token", "create", "--renewer", "bob", "--json")
    made = json.loads(out)
    assert (code, made["owner"], made["renewers"], len(made["password"])) == (0, "User:alice", ["User:bob"], 88)
    assert made["password"] not in err
    code, out, _err = run("bob", "token", "list", "--owner", "alice")
    assert (code, made["token"] in out, made["password"] in out) == (0, True, False)
    code, out, _err = run("bob", "token", "renew", made["token"], "--period", "2h", "--json")
    assert (code, json.loads(out)["expires_ms"] < made["expires_ms"]) == (0, True)
    assert run("alice", "token", "expire", made["token"], "--after", "1h")[0] == 0
    assert run("alice", "token", "expire", made["token"])[0] == 0
    code, _out, err = run("alice", "token", "renew", made["token"])
    assert (code, f"there is no token {made['token']}" in err) == (1, True)


def test_a_login_in_a_file_lets_its_reader_in(run: Run, tmp_path: Path):
    code, out, _err = run("alice", "token", "create", "--max-life", "1h", "--login-file", str(tmp_path / "login"))
    assert (code, len(out.strip())) == (0, 22)
    assert stat.S_IMODE((tmp_path / "login").stat().st_mode) == 0o600
    assert run("guest", "topic", "list")[0] == 0
    code, _out, err = run("guest", "token", "create")
    assert (code, "a credential of their own" in err) == (1, True)
    code, _out, err = run("alice", "token", "create", "--login-file", str(tmp_path / "none" / "login"))
    assert (code, "cannot write" in err, "tailrace token expire" in err) == (1, True, True)


def test_a_length_of_time_that_is_none_is_refused(run: Run):
    code, _out, err = run("alice", "token", "create", "--max-life", "soon")
    assert (code, "soon" in err) == (2, True)
