"""Users of a secure broker under test, and their settings by the names of each client library."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.client.security.users import Login


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


def read_admin(folder: str) -> Login:
    """As `tailrace up --secure` left it."""
    from tailrace.client.security.properties import parse_properties
    from tailrace.client.security.users import Login

    with open(f"{folder}/librdkafka.conf", encoding="utf-8") as file:
        found = parse_properties(file.read())
    return Login(found["sasl.username"], found["sasl.password"], found["ssl.ca.location"])


def create_user(bootstrap: str, admin: Login, name: str) -> Login:
    from tailrace.real.random import RealRandom

    random = RealRandom()
    login = admin._replace(username=name, password=urlsafe_b64encode(random.uuid()).decode().rstrip("="))
    asyncio.run(_create(bootstrap, admin, login, salt=random.uuid()))
    return login


async def _create(bootstrap: str, admin: Login, login: Login, *, salt: bytes) -> None:
    from tailrace.client.metadata import parse_bootstrap
    from tailrace.client.security.settings import parse_security
    from tailrace.client.security.users import LOGIN_MECHANISM, set_credential
    from tailrace.real.cluster import open_cluster

    cluster = open_cluster(parse_bootstrap(bootstrap), security=parse_security(admin.java()))
    try:
        await set_credential(cluster, login.username, LOGIN_MECHANISM, login.password, salt=salt)
    finally:
        cluster.close()
