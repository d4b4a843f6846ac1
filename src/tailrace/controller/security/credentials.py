"""SCRAM credentials (KIP-554): AlterUserScramCredentials as records, and what a credential is made of.

A credential holds no password and nothing that would let its reader log in (RFC 5802): it is the hash of the client's
key, and the key by which a broker proves itself. Each user of a request stands or falls alone. A user may be named
once in a request, to be deleted or to be set.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from typing import NamedTuple

from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import ScramMechanism
from tailrace.wire.apis.security import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from tailrace.wire.apis.stored_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from tailrace.wire.schema import Message

# Kafka's bounds: fewer are easily guessed, and more take each login of a client too long.
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384

_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


class Keys(NamedTuple):
    """What follows from a password that was salted."""

    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "Keys()"


def derive_keys(mechanism: ScramMechanism, salted_password: bytes) -> Keys:
    name = mechanism.hash_name
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return Keys(hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name))


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """A millisecond or more: that is what it is for."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_record(
    user: str, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    keys = derive_keys(mechanism, salted_password)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def alter_user_scram_credentials(view: View, request: AlterUserScramCredentialsRequest) -> Result:
    changes: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    times_named = Counter(change.name for change in changes)
    records: list[Message] = []
    response = AlterUserScramCredentialsResponse()
    for name in times_named:
        result = _Result(user=name, error_message=None)
        response.results.append(result)
        try:
            if times_named[name] > 1:
                reason = "A user credential cannot be altered twice in the same request"
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, reason)
            records.append(_decide(view, next(change for change in changes if change.name == name)))
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message
    return Result(records, response)


def _decide(view: View, change: _Deletion | _Upsertion) -> Message:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
    if isinstance(change, _Deletion):
        if (change.name, mechanism) not in view.image.scram_credentials:
            reason = "Attempt to delete a user credential that does not exist"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, reason)
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=mechanism)
    if change.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations: at least {ITERATIONS_MIN} are needed")
    if change.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations: at most {ITERATIONS_MAX} are taken")
    if not change.salted_password or not change.salt:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A credential needs a salt and a salted password")
    return credential_record(change.name, mechanism, change.salted_password, change.salt, change.iterations)
