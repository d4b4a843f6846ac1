"""`tailrace up --secure`: a broker or a cluster that nobody enters without a credential, from nothing.

The first start makes, in the data folder:
    security/            an authority of its own, and a certificate that all nodes share, as they share machine and user
    client.properties    how the user `admin` comes in: for Java's tools, our commands and Spark
    librdkafka.conf      the same for librdkafka
Later starts find them, and renew the certificate when it is about to end or lacks a name. The admin's password is
random, and in these two files alone, which only their owner can read; the nodes keep what follows from it.

Clients come in by TLS and a password. The nodes of a cluster have listeners for each other, on the loopback address
alone, where both sides show that certificate.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.node.plan import CONTROLLER_LISTENER, NODES_LISTENER, PLAN_FILE, SECURE_LISTENER
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


# Certificates are made for a year; there is a month to notice that one should be renewed.
_RENEWED_AFTER_DAYS = 365 - 30
_DAY_SECONDS = 86400


def prepare(folder: str, *, names: Sequence[str]) -> None:
    """Makes what is not there yet. `names` are those by which clients reach the machine."""
    from tailrace.cli.node.storage import properties_of

    if os.path.exists(f"{folder}/{CLIENT_FILE}"):
        _renew(folder, names)
        return
    if properties_of(folder) is not None or os.path.exists(f"{folder}/{PLAN_FILE}"):
        raise CommandError(
            f"{folder} holds data that was made without --secure, and has no admin: choose another folder, or set up "
            "listeners as docs/security.md tells"
        )
    from tailrace.cli.secure.authority import AUTHORITY, make_authority, write_secret

    security = f"{folder}/{_FOLDER}"
    # Others are not to read the metadata either: what follows from passwords is in it.
    os.makedirs(folder, mode=0o700, exist_ok=True)
    make_authority(security)
    _make_certificate(security, names)
    login = Login(ADMIN, new_password(), f"{security}/{AUTHORITY}.pem")
    write_secret(f"{folder}/{LIBRDKAFKA_FILE}", _lines(login.librdkafka()))
    # The last: a start that was broken off begins anew.
    write_secret(f"{folder}/{CLIENT_FILE}", _lines(login.java()))


def secure_settings(folder: str) -> dict[str, str]:
    """Of every node, by Kafka's names; its listeners are its own."""
    from tailrace.cli.secure.authority import AUTHORITY
    from tailrace.model.config import STANDARD_AUTHORIZER

    return {
        "ssl.keystore.location": f"{folder}/{_FOLDER}/{_BROKER}.pem",
        "ssl.truststore.location": f"{folder}/{_FOLDER}/{AUTHORITY}.pem",
        "sasl.enabled.mechanisms": LOGIN_MECHANISM.mechanism_name,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    }


def secure_cluster_settings(folder: str) -> dict[str, str]:
    """The same for nodes that have others to talk to."""
    return {
        **secure_settings(folder),
        "listener.security.protocol.map": f"{SECURE_LISTENER}:SASL_SSL,{NODES_LISTENER}:SSL,{CONTROLLER_LISTENER}:SSL",
        "inter.broker.listener.name": NODES_LISTENER,
        # Of listeners without SASL.
        "ssl.client.auth": "required",
        "super.users": f"User:{ADMIN};User:CN={_BROKER}",
    }


def admin_credential(folder: str) -> UserScramCredentialRecord:
    """What the metadata of a new cluster begins with."""
    from tailrace.controller.security.credentials import credential_record, salt_password

    salt = os.urandom(20)
    with open(f"{folder}/{LIBRDKAFKA_FILE}", encoding="utf-8") as file:
        login = Login.parse(file.read())
    salted = salt_password(LOGIN_MECHANISM, login.password, salt, ITERATIONS)
    return credential_record(login.username, LOGIN_MECHANISM, salted, salt, ITERATIONS)


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


def _lines(settings: dict[str, str]) -> bytes:
    return "".join(f"{name}={text}\n" for name, text in settings.items()).encode()
