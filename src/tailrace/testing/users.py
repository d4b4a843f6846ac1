"""Users of a secure broker or cluster under test, and their settings by the names of each client library."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.client.connection import Address
    from tailrace.client.metadata import Cluster
    from tailrace.client.security.users import Login
    from tailrace.model.acls import Acl

# Until every broker has heard of a new user.
_KNOWN_TIMEOUT_S = 15.0
_PAUSE_S = 0.01


class ClientSettings:
    """Of one user. A repr has no secret."""

    def __init__(self, bootstrap: str, login: Login) -> None:
        self.bootstrap = bootstrap
        self.login = login

    def __repr__(self) -> str:
        return f"<settings of {self.login.username} at {self.bootstrap}>"

    def confluent(self) -> dict[str, str]:
        """`confluent_kafka.Producer(settings.confluent())`"""
        return {"bootstrap.servers": self.bootstrap, **self.login.librdkafka()}

    def java(self) -> dict[str, str]:
        """As properties; Spark takes them with `kafka.` before each name."""
        return {"bootstrap.servers": self.bootstrap, **self.login.java()}

    def kafka_python(self) -> dict[str, Any]:
        """`kafka.KafkaProducer(**settings.kafka_python())`"""
        return {**self._of_python(), "ssl_cafile": self.login.authority}

    def aiokafka(self) -> dict[str, Any]:
        """`aiokafka.AIOKafkaProducer(**settings.aiokafka())`"""
        import ssl

        return {**self._of_python(), "ssl_context": ssl.create_default_context(cafile=self.login.authority)}

    def _of_python(self) -> dict[str, str]:
        found = self.login.librdkafka()
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": found["security.protocol"],
            "sasl_mechanism": found["sasl.mechanism"],
            "sasl_plain_username": self.login.username,
            "sasl_plain_password": self.login.password,
        }


def admin_settings(bootstrap: str, folder: str, *, is_secure: bool) -> ClientSettings:
    """Of the admin that `tailrace up --secure` has made."""
    if not is_secure:
        raise RuntimeError("clients need no settings but bootstrap: it was not started with secure=True")
    from tailrace.client.security.users import Login

    with open(f"{folder}/librdkafka.conf", encoding="utf-8") as file:
        return ClientSettings(bootstrap, Login.parse(file.read()))


def create_user(admin: ClientSettings, name: str, acls: Sequence[str]) -> ClientSettings:
    """Returns when every broker lets the user in. Each of `acls` is like "write topic:orders", "read group:*", or
    "read topic:orders-*" for all names that begin so."""
    from tailrace.real.random import RealRandom

    random = RealRandom()
    password = urlsafe_b64encode(random.uuid()).decode().rstrip("=")
    user = ClientSettings(admin.bootstrap, admin.login._replace(username=name, password=password))
    asyncio.run(_create(admin, user, [_parse_acl(f"User:{name}", text) for text in acls], salt=random.uuid()))
    return user


def _parse_acl(principal: str, text: str) -> Acl:
    from tailrace.model.acls import CLUSTER_NAME, WILDCARD, Acl, Kind, Operation, PatternType, Permission

    operation, _, resource = text.partition(" ")
    kind, _, name = resource.partition(":")
    if kind == "cluster":
        name = CLUSTER_NAME
    try:
        found = Kind[kind.upper().replace("-", "_")], Operation[operation.upper().replace("-", "_")]
    except KeyError:
        found = None
    if found is None or not name:
        raise ValueError(f'{text!r} is no ACL: write OPERATION KIND:NAME, such as "write topic:orders"')
    pattern = PatternType.LITERAL
    if name.endswith("*") and name != WILDCARD:
        name, pattern = name[:-1], PatternType.PREFIXED
    return Acl(found[0], name, pattern, principal, WILDCARD, found[1], Permission.ALLOW)


async def _create(admin: ClientSettings, user: ClientSettings, acls: Sequence[Acl], *, salt: bytes) -> None:
    from tailrace.client.acls import AclAdmin
    from tailrace.client.metadata import parse_bootstrap
    from tailrace.client.security.users import LOGIN_MECHANISM, set_credential

    addresses = parse_bootstrap(admin.bootstrap)
    cluster = _open(addresses, admin.login)
    try:
        if acls:
            await AclAdmin(cluster).create(acls)
        await set_credential(cluster, user.login.username, LOGIN_MECHANISM, user.login.password, salt=salt)
    finally:
        cluster.close()
    # Brokers hear of changes in their order: who knows the password knows the ACLs.
    async with asyncio.timeout(_KNOWN_TIMEOUT_S):
        for address in addresses:
            await _wait_known(address, user.login)


async def _wait_known(address: Address, login: Login) -> None:
    """A broker that is not there hears of everything before it serves again."""
    from tailrace.model.errors import ErrorCode, KafkaError

    cluster = _open([address], login)
    try:
        while True:
            try:
                await cluster.any_connection()
                return
            except KafkaError as error:
                if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                    return
            await asyncio.sleep(_PAUSE_S)
    finally:
        cluster.close()


def _open(addresses: Sequence[Address], login: Login) -> Cluster:
    from tailrace.client.security.settings import parse_security
    from tailrace.real.cluster import open_cluster

    return open_cluster(addresses, security=parse_security(login.java()))
