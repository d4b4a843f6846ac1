"""What follows from `delegation.token.secret.key`, which all nodes have: the HMAC of each token, which is its password,
and the SCRAM credential by which that is proved. None of it is stored, told in a log or part of a repr.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping

from tailrace.controller.image import DelegationToken, ScramCredential
from tailrace.controller.security.credentials import ITERATIONS_MIN, derive_keys, salt_password
from tailrace.model.security import ScramMechanism

_SALT_BYTES = 20


class TokenKeys:
    def __init__(self, secret_key: str) -> None:
        self._key = secret_key.encode()
        # Tokens by their HMACs, as of the map that was last looked at.
        self._tokens: Mapping[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, tokens: Mapping[str, DelegationToken], given: bytes) -> DelegationToken | None:
        """The token that has this HMAC. Those of all tokens are kept, since each takes a microsecond or two."""
        if tokens is not self._tokens:
            gone = self._tokens.keys() - tokens.keys()
            self._ids = {key: token_id for key, token_id in self._ids.items() if token_id not in gone}
            self._ids |= {self.hmac_of(token_id): token_id for token_id in tokens.keys() - self._tokens.keys()}
            self._tokens = tokens
        token_id = self._ids.get(bytes(given))
        return None if token_id is None else tokens[token_id]

    def credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """What a token with that id would be proved by, whether there is one or not: so nobody can tell. It takes
        milliseconds, and belongs into a helper thread. All nodes have the same."""
        password = self.hmac_of(token_id)
        salt = hmac.digest(self._key, b"salt\0" + token_id.encode(), "sha512")[:_SALT_BYTES]
        salted = salt_password(mechanism, b64encode(password).decode(), salt, ITERATIONS_MIN)
        keys = derive_keys(mechanism, salted)
        return ScramCredential(salt, keys.stored_key, keys.server_key, ITERATIONS_MIN)
