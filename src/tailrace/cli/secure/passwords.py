"""Passwords and SCRAM credentials of the command line. A password is never an argument of ours: whoever lists the
processes of a machine sees those. It comes from a file, from standard input, from the environment or from a prompt.
"""

from __future__ import annotations

import os
import re
import sys
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

from tailrace.cli import CommandError

if TYPE_CHECKING:
    from tailrace.model.security import ScramMechanism
    from tailrace.wire.apis.stored_records import UserScramCredentialRecord

_FORM = "SCRAM-SHA-512=[name=alice,password-file=FILE]"
_STDIN = "-"


def read_password(path: str | None, prompt: str = "password: ") -> str:
    """`path` is a file whose first line it is, - for standard input, or None: who sits there is asked, twice."""
    if path == _STDIN or (path is None and not sys.stdin.isatty()):
        return _checked(sys.stdin.readline(), "standard input")
    if path is not None:
        try:
            warn_if_open(path)
            with open(path, encoding="utf-8") as file:
                return _checked(file.readline(), path)
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from None
    from getpass import getpass

    password = getpass(prompt)
    if getpass("again: ") != password:
        raise CommandError("the two passwords differ")
    return _checked(password, "the prompt")


def password_from_environment(variable: str) -> str:
    return _checked(os.environ.get(variable, ""), f"the variable {variable}")


def warn_if_open(path: str) -> None:
    """Raises OSError."""
    from tailrace.real.secret_files import can_others_read

    if can_others_read(path):
        print(f"tailrace: others can read {path}: chmod 600 {path}", file=sys.stderr)


def new_password() -> str:
    """Of 144 random bits."""
    return b64encode(os.urandom(18), b"-_").decode()


def parse_add_scram(text: str) -> UserScramCredentialRecord:
    """The form of kafka-storage, SCRAM-SHA-256=[name=alice,password=secret], with iterations=, salt=, saltedpassword=
    (both base64) or password-file= if you like."""
    from tailrace.client.security.users import ITERATIONS
    from tailrace.controller.security.credentials import ITERATIONS_MAX, ITERATIONS_MIN, credential_record

    found = re.fullmatch(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[(.*)\]", text.strip())
    if found is None:
        raise CommandError(f"--add-scram: expected {_FORM}")
    mechanism = find_mechanism(found[1])
    fields = dict(_field(word) for word in found[2].split(","))
    if unknown := sorted(fields.keys() - {"name", "password", "password-file", "iterations", "salt", "saltedpassword"}):
        raise CommandError(f"--add-scram: {unknown[0]} is not known: expected {_FORM}")
    if not fields.get("name"):
        raise CommandError(f"--add-scram: a name is missing: expected {_FORM}")
    iterations = int(fields["iterations"]) if fields.get("iterations", "").isdecimal() else ITERATIONS
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise CommandError(f"--add-scram: iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = _base64(fields["salt"]) if "salt" in fields else os.urandom(20)
    salted = _salted(fields, mechanism, salt, iterations)
    return credential_record(fields["name"], mechanism, salted, salt, iterations)


def find_mechanism(name: str) -> ScramMechanism:
    from tailrace.model.security import ScramMechanism

    return next(each for each in ScramMechanism if each.mechanism_name == name)


def _salted(fields: dict[str, str], mechanism: ScramMechanism, salt: bytes, iterations: int) -> bytes:
    from tailrace.controller.security.credentials import salt_password

    ways = [name for name in ("password", "password-file", "saltedpassword") if name in fields]
    if len(ways) != 1:
        raise CommandError("--add-scram: give one of password-file=, password= and saltedpassword=")
    if ways == ["saltedpassword"]:
        if "salt" not in fields:
            raise CommandError("--add-scram: saltedpassword= needs the salt= that it was made with")
        return _base64(fields["saltedpassword"])
    if ways == ["password"]:
        print("tailrace: a password as an argument can be seen by others: use password-file=", file=sys.stderr)
        return salt_password(mechanism, _checked(fields["password"], "password="), salt, iterations)
    return salt_password(mechanism, read_password(fields["password-file"]), salt, iterations)


def _field(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name.strip(), value.strip('"')


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise CommandError("--add-scram: salt= and saltedpassword= are base64") from None


def _checked(line: str, source: str) -> str:
    password = line.rstrip("\r\n")
    if not password:
        raise CommandError(f"there is no password in {source}")
    return password
