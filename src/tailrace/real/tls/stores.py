"""Files of certificates and keys as texts of PEM, whatever they are: PEM, or PKCS12 by the package cryptography.

What a file is, its first bytes tell, and not ssl.keystore.type: Java too takes a PKCS12 store where the type says JKS.
Java's own stores (JKS) cannot be read, and are refused with the command that converts them. Every refusal is a
KafkaError INVALID_CONFIG that names the setting, and never a password.
"""

from __future__ import annotations

import os
import re
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.model.errors import KafkaError
from tailrace.model.security import Store
from tailrace.model.settings import invalid

_PEM_BEGIN = "-----BEGIN "
_JKS_MAGICS = (bytes.fromhex("feedfeed"), bytes.fromhex("cececece"))
_DER_SEQUENCE = b"\x30"
_LIST = "X509 CRL"


def read_pem(store: Store) -> str:
    """Certificates and, if there is one, the key."""
    data = _read(store)
    text = data.decode("utf-8", "replace")
    if _PEM_BEGIN in text:
        return _rewrapped(text)
    if data.startswith(_JKS_MAGICS):
        path = store.path or "STORE"
        command = f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        raise refusal(store, f"It is a Java key store (JKS). Convert it by: {command}")
    if data.startswith(_DER_SEQUENCE):
        return _from_pkcs12(store, data)
    raise refusal(store, "It is neither a PKCS12 store nor PEM, a text with lines such as -----BEGIN CERTIFICATE-----")


def read_lists(store: Store) -> str:
    """Revocation lists."""
    data = _read(store)
    text = data.decode("utf-8", "replace")
    if f"{_PEM_BEGIN}{_LIST}-----" in text:
        return text
    if data.startswith(_DER_SEQUENCE):
        return f"-----BEGIN {_LIST}-----\n{b64encode(data).decode()}\n-----END {_LIST}-----\n"
    raise refusal(store, f"It holds no revocation list: PEM with -----BEGIN {_LIST}-----, or DER")


def refusal(store: Store, reason: str) -> KafkaError:
    return invalid(store.setting, store.path or "(a text)", reason)


def reason_of(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


@contextmanager
def file_of(text: str) -> Iterator[str]:
    """The ssl module takes keys and revocation lists from files alone. This one is in memory, and gone after."""
    descriptor = os.memfd_create("pem")
    try:
        with os.fdopen(os.dup(descriptor), "w") as file:
            file.write(text)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _read(store: Store) -> bytes:
    if store.text is not None:
        return store.text.encode()
    assert store.path is not None, "a store has a path or a text"
    try:
        with open(store.path, "rb") as file:
            return file.read()
    except OSError as error:
        reason = f"The file cannot be read on this machine: {error.strerror}"
        raise invalid(store.setting, store.path, reason) from None


def _from_pkcs12(store: Store, data: bytes) -> str:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        remedy = "pip install 'tailrace[security]', or convert the store to PEM"
        raise refusal(store, f"PKCS12 stores are read by the package cryptography: {remedy}") from None
    password_setting = store.setting.replace(".location", ".password")
    try:
        found = load_pkcs12(data, store.password.encode() if store.password else None)
    except UnsupportedAlgorithm as error:
        raise refusal(store, f"It is encrypted in a way that is not read here ({error}): write it anew") from None
    except (ValueError, TypeError):
        what = "or the password is wrong" if store.password else "or it has a password, which is missing"
        raise refusal(store, f"It is no PKCS12 store that can be read, {what}: see {password_setting}") from None
    certificates = [each for each in (found.cert, *found.additional_certs) if each is not None]
    parts = [each.certificate.public_bytes(Encoding.PEM) for each in certificates]
    if found.key is not None:
        parts.insert(0, found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return b"".join(parts).decode()


def _rewrapped(text: str) -> str:
    """Settings are often written in one line, with blanks or `\\n` for line ends; OpenSSL wants the lines."""
    if "\n" in text.strip():
        return text
    blocks = re.findall(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", text.replace("\\n", " "))
    return "".join(
        f"-----BEGIN {kind}-----\n"
        + "\n".join(re.findall(".{1,64}", "".join(body.split())))
        + f"\n-----END {kind}-----\n"
        for kind, body in blocks
    )
