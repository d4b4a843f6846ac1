"""The server's side of SCRAM, from RFC 5802 and apart from the client's: it keeps no password, only what follows."""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode

ITERATIONS = 4096
SALT = b"salt of a server"


class ScramServer:
    def __init__(self, hash_name: str, passwords: dict[str, str]) -> None:
        self.hash_name = hash_name
        self._stored = {}
        for name, password in passwords.items():
            salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), SALT, ITERATIONS)
            stored_key = hashlib.new(hash_name, self._hmac(salted, b"Client Key")).digest()
            self._stored[name] = stored_key, self._hmac(salted, b"Server Key")

    def handle_first(self, message: bytes) -> bytes:
        found = re.fullmatch(r"n,,(n=([^,]*),r=([^,]+))", message.decode())
        assert found is not None, message
        self._client_first, name, nonce = found.groups()
        self.username = name.replace("=2C", ",").replace("=3D", "=")
        self._nonce = nonce + "of-the-server"
        self._server_first = f"r={self._nonce},s={b64encode(SALT).decode()},i={ITERATIONS}"
        return self._server_first.encode()

    def handle_final(self, message: bytes) -> bytes:
        """Raises PermissionError if the proof is wrong."""
        without_proof, _, proof = message.decode().rpartition(",p=")
        assert without_proof == f"c=biws,r={self._nonce}"
        spoken = f"{self._client_first},{self._server_first},{without_proof}".encode()
        if self.username not in self._stored:
            raise PermissionError("no such user")
        stored_key, server_key = self._stored[self.username]
        signature = self._hmac(stored_key, spoken)
        client_key = bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash_name, client_key).digest() != stored_key:
            raise PermissionError("wrong password")
        return b"v=" + b64encode(self._hmac(server_key, spoken))

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash_name)
