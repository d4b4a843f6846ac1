"""`tailrace user`, and credentials that a cluster begins with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.broker.quorum.bootstrap import read_bootstrap, store_bootstrap
from tailrace.cli import CommandError, main
from tailrace.cli.secure.passwords import parse_add_scram
from tailrace.controller.security.credentials import derive_keys, salt_password
from tailrace.model.errors import StorageError
from tailrace.model.security import ScramMechanism
from tailrace.real.disk import RealDisk
from tests.unit.broker.world import World

Run = Callable[..., tuple[int, str, str]]
SHA_256, SHA_512 = ScramMechanism


def test_a_user_is_created_listed_and_deleted(run: Run, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    secret.chmod(0o600)
    code, out, err = run("user", "create", "alice", "--password-file", str(secret), "--mechanism", "SCRAM-SHA-256")
    assert (code, out) == (0, "")
    assert "hunter2" not in err
    code, out, _err = run("user", "create", "bob", "--generate", "--json")
    made = json.loads(out)
    assert (code, made["mechanism"], len(made["password"])) == (0, "SCRAM-SHA-512", 24)
    code, out, _err = run("user", "list", "--json")
    assert {(each["user"], each["mechanism"], each["iterations"]) for each in json.loads(out)} >= {
        ("alice", "SCRAM-SHA-256", 4096),
        ("bob", "SCRAM-SHA-512", 4096),
    }
    assert run("user", "delete", "alice")[0] == 0
    assert run("user", "delete", "bob", "--mechanism", "SCRAM-SHA-512")[0] == 0
    code, _out, err = run("user", "delete", "alice")
    assert (code, "alice has no credentials" in err) == (1, True)
    assert "alice" not in run("user", "list")[1]


def test_what_the_broker_refuses_is_told(run: Run, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    code, _out, err = run("user", "create", "few", "--password-file", str(secret), "--iterations", "100")
    assert (code, "Too few iterations" in err) == (1, True)
    assert f"chmod 600 {secret}" in err
    code, _out, err = run("user", "create", "few", "--password-file", str(tmp_path / "none"))
    assert (code, "cannot read" in err) == (1, True)


def test_a_password_may_come_from_the_environment(run: Run, monkeypatch):
    monkeypatch.setenv("ALICE", "hunter2")
    code, out, err = run("user", "create", "alice", "--password-env", "ALICE")
    assert (code, "hunter2" in out + err) == (0, False)
    code, _out, err = run("user", "create", "alice", "--password-env", "NOBODY")
    assert (code, "there is no password in the variable NOBODY" in err) == (1, True)


def test_a_credential_is_read_from_its_text(tmp_path: Path, monkeypatch, capsys):
    record = parse_add_scram("SCRAM-SHA-256=[name=alice,iterations=8192,salt=c2FsdA==,password=x]")
    keys = derive_keys(SHA_256, salt_password(SHA_256, "x", b"salt", 8192))
    assert (record.name, record.mechanism, record.iterations, record.salt) == ("alice", SHA_256, 8192, b"salt")
    assert (record.stored_key, record.server_key) == keys
    assert "password-file=" in capsys.readouterr().err
    file = tmp_path / "secret"
    file.write_text("x\n")
    same = parse_add_scram(f"SCRAM-SHA-256=[name=alice,iterations=8192,salt=c2FsdA==,password-file={file}]")
    assert same == record
    monkeypatch.setattr("sys.stdin", io.StringIO("x\n"))
    assert parse_add_scram("SCRAM-SHA-256=[name=alice,iterations=8192,salt=c2FsdA==,password-file=-]") == record
    salted = parse_add_scram("SCRAM-SHA-512=[name=bob,salt=c2FsdA==,saltedpassword=c2FsdGVk]")
    assert (salted.stored_key, salted.iterations) == (derive_keys(SHA_512, b"salted").stored_key, 4096)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-1=[name=a,password=b]",
        "SCRAM-SHA-256=name=a,password=b",
        "SCRAM-SHA-256=[password=b]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=]",
        "SCRAM-SHA-256=[name=a,password=b,iterations=100]",
        "SCRAM-SHA-256=[name=a,password=b,iterations=99999]",
        "SCRAM-SHA-256=[name=a,password=b,other=c]",
        "SCRAM-SHA-256=[name=a,saltedpassword=c2FsdGVk]",
        "SCRAM-SHA-256=[name=a,salt=!,password=b]",
        "SCRAM-SHA-256=[name=a,password-file=/none]",
    ],
)
def test_credentials_that_cannot_be_read(text):
    with pytest.raises(CommandError):
        parse_add_scram(text)


def test_format_leaves_them_for_the_first_controller(tmp_path: Path, capsys):
    config = tmp_path / "node.toml"
    config.write_text(f'node.id = 1\nlog.dirs = "{tmp_path}/data"\n')
    credential = "SCRAM-SHA-512=[name=admin,password=x]"
    assert main(["format", "-c", str(config), "-S", credential]) == 0
    (stored,) = read_bootstrap(RealDisk(), f"{tmp_path}/data")
    assert (stored.name, stored.mechanism) == ("admin", SHA_512)
    config.write_text(
        f'node.id = 1\nlog.dirs = "{tmp_path}/other"\nprocess.roles = "broker"\n'
        'controller.quorum.bootstrap.servers = "h:1"\ncontroller.listener.names = "C"\n'
    )
    assert main(["format", "-c", str(config), "-S", credential, "-t", "A" * 22]) == 1
    assert "for controllers" in capsys.readouterr().err


async def test_the_first_controller_makes_metadata_of_them_once():
    world = World()
    record = parse_add_scram("SCRAM-SHA-512=[name=admin,password=x]")
    store_bootstrap(world.disk, "data", [record], timestamp_ms=1)
    broker = await world.start()
    credential = broker.image.scram_credentials["admin", SHA_512]
    assert credential.stored_key == record.stored_key
    await broker.stop()
    store_bootstrap(world.disk, "data", [parse_add_scram("SCRAM-SHA-512=[name=late,password=x]")], timestamp_ms=1)
    broker = await world.start()
    assert dict(broker.image.scram_credentials) == {("admin", SHA_512): credential}
    await broker.stop()


def test_a_damaged_file_is_not_passed_over(tmp_path: Path):
    store_bootstrap(RealDisk(), str(tmp_path), [parse_add_scram("SCRAM-SHA-512=[name=a,password=x]")], timestamp_ms=1)
    path = tmp_path / "bootstrap.checkpoint"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match="damaged"):
        read_bootstrap(RealDisk(), str(tmp_path))
