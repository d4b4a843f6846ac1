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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.node.machine.plan import CONTROLLER_LISTENER, NODES_LISTENER, PLAN_FILE, SECURE_LISTENER
from tailrace.cli.secure import AUTHORITY
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
_SUPER_USERS = "super.users"
_SETTINGS_OF_LISTENERS = frozenset({"listener.security.protocol.map", "inter.broker.listener.name"})

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
    from tailrace.cli.secure.authority import make_authority, write_secret
    from tailrace.cli.secure.passwords import new_password

    security = f"{folder}/{_FOLDER}"
    # Others are not to read the metadata either: what follows from passwords is in it.
    os.makedirs(folder, mode=0o700, exist_ok=True)
    make_authority(security)
    _make_certificate(security, names)
    login = Login(ADMIN, new_password(), authority_certificate(folder))
    write_secret(f"{folder}/{LIBRDKAFKA_FILE}", _lines(login.librdkafka()))
    # The last: a start that was broken off begins anew.
    write_secret(f"{folder}/{CLIENT_FILE}", _lines(login.java()))


def secure_settings(folder: str, own: Mapping[str, str]) -> dict[str, str]:
    """Of a broker alone, by Kafka's names; its listeners are its own. What the user has set comes last, but for super
    users: those are added."""
    from tailrace.model.config import STANDARD_AUTHORIZER

    return _with_own(
        {
            **_stores(folder),
            "sasl.enabled.mechanisms": LOGIN_MECHANISM.mechanism_name,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            _SUPER_USERS: f"User:{ADMIN}",
        },
        own,
    )


def secure_cluster_settings(folder: str, own: Mapping[str, str]) -> dict[str, str]:
    """The same for nodes that have others to talk to. How they do that is written for these listeners alone, so that
    other certificates for clients do not lock the nodes out."""
    if refused := sorted(_SETTINGS_OF_LISTENERS & own.keys()):
        raise CommandError(f"--set {refused[0]}: the nodes of a secure cluster need listeners as `up` chooses them")
    among_nodes = {
        f"listener.name.{listener.lower()}.{name}": text
        for listener in (NODES_LISTENER, CONTROLLER_LISTENER)
        for name, text in {**_stores(folder), "ssl.client.auth": "required"}.items()
    }
    settings = {
        "listener.security.protocol.map": f"{SECURE_LISTENER}:SASL_SSL,{NODES_LISTENER}:SSL,{CONTROLLER_LISTENER}:SSL",
        "inter.broker.listener.name": NODES_LISTENER,
        **among_nodes,
    }
    insiders = f"{own.get(_SUPER_USERS, '')};User:CN={_BROKER}".removeprefix(";")
    return settings | secure_settings(folder, {**own, _SUPER_USERS: insiders})


def _stores(folder: str) -> dict[str, str]:
    return {
        "ssl.keystore.location": broker_certificate(folder),
        "ssl.truststore.location": authority_certificate(folder),
    }


def _with_own(settings: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    users = [*settings[_SUPER_USERS].split(";"), *own.get(_SUPER_USERS, "").split(";")]
    return settings | dict(own) | {_SUPER_USERS: ";".join(dict.fromkeys(filter(None, map(str.strip, users))))}


def broker_certificate(folder: str) -> str:
    """The path of the certificate that the brokers show to clients, with its key."""
    return f"{folder}/{_FOLDER}/{_BROKER}.pem"


def authority_certificate(folder: str) -> str:
    """The path of the certificate of the authority that the brokers' one was made by."""
    return f"{folder}/{_FOLDER}/{AUTHORITY}.pem"


def write_app_tls(folder: str, name: str) -> str:
    """How an app beside the brokers serves https: with the certificate that they have. The file's path."""
    path = f"{folder}/{_FOLDER}/{name}.properties"
    with open(path, "wb") as file:
        file.write(_lines(_stores(folder)))
    return path


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
