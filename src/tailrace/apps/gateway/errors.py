"""What the gateway refuses, in the codes of Confluent's REST proxy: the first three digits are the HTTP status.

4xx, 5xx  of HTTP itself            42201..7  what a record says cannot be
40002     the cluster calls it wrong       42901  a quota
40101     who is this                      50002  the cluster failed
40301     may not                          50003  the cluster failed, and may be asked again
40401, 40402, 40403  no topic, no partition, one of both
"""

from __future__ import annotations

from typing import Any

from tailrace.client.lanes import UnknownOutcomeError
from tailrace.model.errors import ErrorCode, KafkaError


class GatewayError(Exception):
    def __init__(self, status: int, code: int, message: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers

    def document(self) -> dict[str, Any]:
        return {"error_code": self.code, "message": self.message}


_CODES = {
    ErrorCode.SASL_AUTHENTICATION_FAILED: (401, 40101),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: (401, 40101),
    ErrorCode.ILLEGAL_SASL_STATE: (401, 40101),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (403, 40301),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (403, 40301),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (403, 40301),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (403, 40301),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, 40403),
    ErrorCode.UNKNOWN_TOPIC_ID: (404, 40401),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, 40403),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (429, 42901),
    ErrorCode.BROKER_NOT_AVAILABLE: (503, 50302),
    ErrorCode.NETWORK_EXCEPTION: (503, 50003),
    ErrorCode.NOT_ENOUGH_REPLICAS: (503, 50003),
    ErrorCode.MESSAGE_TOO_LARGE: (413, 413),
    ErrorCode.RECORD_LIST_TOO_LARGE: (413, 413),
}
# What is wrong with the question, as the cluster sees it.
_BAD_REQUESTS = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_RECORD,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.TOPIC_DELETION_DISABLED,
    }
)


def of_kafka(error: KafkaError) -> GatewayError:
    status, code = _CODES.get(error.code) or _by_kind(error.code)
    text = error.message or error.code.name
    if error.code is not ErrorCode.NETWORK_EXCEPTION and error.code.name not in text:
        text = f"{text} ({error.code.name})"
    return GatewayError(status, code, text)


def _by_kind(code: ErrorCode) -> tuple[int, int]:
    if code in _BAD_REQUESTS:
        return 400, 40002
    return (500, 50003) if code.retriable else (500, 50002)


def of_record(error: KafkaError | GatewayError) -> dict[str, Any]:
    """A record that is not known to be written: whether it is known not to be is told in `outcome`."""
    if isinstance(error, GatewayError):
        return {**error.document(), "outcome": "not_written"}
    document = of_kafka(error).document()
    if isinstance(error, UnknownOutcomeError):
        return {**document, "message": f"It is not known whether this was written: {document['message']}",
                "outcome": "unknown"}  # fmt: skip
    return {**document, "outcome": "not_written"}


def bad_request(reason: str) -> GatewayError:
    return GatewayError(400, 400, f"Bad Request: {reason}")


def bad_field(reason: str) -> GatewayError:
    """A document that is JSON, and not what is asked for."""
    return GatewayError(422, 42206, f"Payload error. {reason}")


def too_large(reason: str) -> GatewayError:
    return GatewayError(413, 413, f"Request Entity Too Large: {reason}")


def too_many(reason: str) -> GatewayError:
    return GatewayError(503, 50301, reason, headers={"Retry-After": "1"})


def registry_away(reason: str) -> GatewayError:
    return GatewayError(503, 50303, reason, headers={"Retry-After": "1"})


def unauthorized(reason: str) -> GatewayError:
    return GatewayError(401, 40101, f"Unauthorized: {reason}", headers={"WWW-Authenticate": 'Basic realm="tailrace"'})


def not_found(what: str) -> GatewayError:
    return GatewayError(404, 404, f"HTTP 404 Not Found: {what}")
