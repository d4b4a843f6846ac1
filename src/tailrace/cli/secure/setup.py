"""`tailrace up --secure`: a broker that nobody enters without a credential, from nothing.

The first start makes, in the data folder:
    security/            an authority of its own and the broker's certificate
    client.properties    how the user `admin` comes in: for Java's tools, our commands and Spark
    librdkafka.conf      the same for librdkafka
Later starts find them, and renew the certificate when it is about to end or lacks a name. The admin's password is
random, and in these two files alone, which only their owner can read; the broker keeps what follows from it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.secure.passwords import new_password
from tailrace.client.security.users import ITERATIONS, LOGIN_MECHANISM, Login

if TYPE_CHECKING:
    from tailrace.wire.apis.stored_records import UserScramCredentialRecord

ADMIN = "admin"
CLIENT_FILE = "client.properties"
LIBRDKAFKA_FILE = "librdkafka.conf"
_FOLDER = "security"
_BROKER = "broker"
_NAMES = "names"  # Those that the certificate was asked to have.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


# Certificates are made for a year; there is a month to notice that one should be renewed.
_RENEWED_AFTER_DAYS = 365 - 30
_DAY_SECONDS = 86400


def prepare(folder: str, *, names: Sequence[str]) -> None:
    """Makes what is not there yet. `names` are those by which clients reach the broker."""
    from tailrace.cli.node.storage import properties_of, store_credentials

    if os.path.exists(f"{folder}/{CLIENT_FILE}"):
        _renew(folder, names)
        return
    if properties_of(folder) is not None:
        raise CommandError(
            f"{folder} holds the data of a broker that was made without --secure, and has no admin: choose another "
            "folder, or set up its listeners as docs/security.md tells"
        )
    from tailrace.cli.secure.authority import AUTHORITY, make_authority, write_secret

    security = f"{folder}/{_FOLDER}"
    # Others are not to read the metadata either: what follows from passwords is in it.
    os.makedirs(folder, mode=0o700, exist_ok=True)
    make_authority(security)
    _make_certificate(security, names)
    login = Login(ADMIN, new_password(), f"{security}/{AUTHORITY}.pem")
    store_credentials(folder, [_credential(login)])
    write_secret(f"{folder}/{LIBRDKAFKA_FILE}", _lines(login.librdkafka()))
    # The last: a start that was broken off begins anew.
    write_secret(f"{folder}/{CLIENT_FILE}", _lines(login.java()))


def secure_settings(folder: str, endpoint: str) -> dict[str, str]:
    """Of a broker at `host:port`, by Kafka's names."""
    from tailrace.cli.secure.authority import AUTHORITY

    return {
        "listeners": f"SASL_SSL://{endpoint}",
        "ssl.keystore.location": f"{folder}/{_FOLDER}/{_BROKER}.pem",
        "ssl.truststore.location": f"{folder}/{_FOLDER}/{AUTHORITY}.pem",
        "sasl.enabled.mechanisms": LOGIN_MECHANISM.mechanism_name,
        "authorizer.class.name": _AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    }


def tell(folder: str) -> None:
    print(f"clients log in as {ADMIN} by {folder}/{CLIENT_FILE} or {folder}/{LIBRDKAFKA_FILE}", file=sys.stderr)


def _renew(folder: str, names: Sequence[str]) -> None:
    """Looking at a certificate takes a library that is slow to load: so the file's age tells whether that is due."""
    security = f"{folder}/{_FOLDER}"
    try:
        age_days = (time.time() - os.stat(f"{security}/{_BROKER}.pem").st_mtime) / _DAY_SECONDS
        with open(f"{security}/{_NAMES}", encoding="utf-8") as file:
            is_known = set(names) <= set(file.read().split())
    except FileNotFoundError:
        age_days, is_known = 0.0, False
    if age_days > _RENEWED_AFTER_DAYS or not is_known:
        _make_certificate(security, names)


def _make_certificate(security: str, names: Sequence[str]) -> None:
    from tailrace.cli.secure.authority import make_certificate

    make_certificate(security, _BROKER, [*_LOOPBACK, *names])
    with open(f"{security}/{_NAMES}", "w", encoding="utf-8") as file:
        file.write("\n".join(names))


def _credential(login: Login) -> UserScramCredentialRecord:
    from tailrace.controller.security.credentials import credential_record, salt_password

    mechanism, salt = LOGIN_MECHANISM, os.urandom(20)
    salted = salt_password(mechanism, login.password, salt, ITERATIONS)
    return credential_record(login.username, mechanism, salted, salt, ITERATIONS)


def _lines(settings: dict[str, str]) -> bytes:
    return "".join(f"{name}={text}\n" for name, text in settings.items()).encode()
