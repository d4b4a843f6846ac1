"""Users that log in by SCRAM (KIP-554), and what one needs to come in. A password never leaves this machine: it is
salted here, and the broker keeps what follows from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.client.connection import error_code
from tailrace.client.security.properties import parse_properties
from tailrace.controller.security.credentials import salt_password
from tailrace.model.errors import KafkaError
from tailrace.model.security import ScramMechanism
from tailrace.wire.apis.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from tailrace.client.metadata import Cluster

# Kafka's own least number. The stored keys are as good as the password is.
ITERATIONS = 4096
LOGIN_MECHANISM = ScramMechanism.SCRAM_SHA_512
DescribedUser = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


class Login(NamedTuple):
    """By SCRAM-SHA-512 over TLS, by whatever names a library has for it."""

    username: str
    password: str
    authority: str  # The path of a PEM file.

    @classmethod
    def parse(cls, text: str) -> Login:
        """From a file that has what `librdkafka` gives."""
        found = parse_properties(text)
        return cls(found["sasl.username"], found["sasl.password"], found["ssl.ca.location"])

    def __repr__(self) -> str:
        return f"<login of {self.username}>"

    def librdkafka(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": LOGIN_MECHANISM.mechanism_name,
            "sasl.username": self.username,
            "sasl.password": self.password,
            "ssl.ca.location": self.authority,
        }

    def java(self) -> dict[str, str]:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": LOGIN_MECHANISM.mechanism_name,
            "sasl.jaas.config": f'{module} required username="{self.username}" password="{self.password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
        }


async def set_credential(
    cluster: Cluster, user: str, mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int = ITERATIONS
) -> None:
    """Raises KafkaError."""
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salt_password(mechanism, password, salt, iterations),
    )
    await _alter(cluster, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete_credential(cluster: Cluster, user: str, mechanism: ScramMechanism) -> None:
    """Raises KafkaError."""
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=user, mechanism=mechanism)
    await _alter(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]))


async def describe_users(cluster: Cluster, names: Sequence[str] | None = None) -> list[DescribedUser]:
    """All, or those: each has an error code of its own. Raises KafkaError."""
    user = DescribeUserScramCredentialsRequest.UserName
    users = None if names is None else [user(name=name) for name in names]
    connection = await cluster.any_connection()
    request = DescribeUserScramCredentialsRequest(users=users)
    answer = await connection.call(request, DescribeUserScramCredentialsResponse)
    if answer.error_code:
        raise KafkaError(error_code(answer.error_code), answer.error_message or "The broker does not tell its users")
    return answer.results


async def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    connection = await cluster.any_connection()
    answer = await connection.call(request, AlterUserScramCredentialsResponse)
    for result in answer.results:
        if result.error_code:
            raise KafkaError(error_code(result.error_code), f"{result.user}: {result.error_message}")
