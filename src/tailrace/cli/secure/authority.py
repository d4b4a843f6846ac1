"""An authority of one's own, and certificates that it signs: keys on P-256, PEM files in one folder.

    authority.pem, authority.key   who trusts the first trusts all below; the second signs them
    NAME.pem                       a key, its certificate and that of the authority: what ssl.keystore.location wants

Files with keys are readable for their owner alone. A certificate is for both sides of TLS.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, NamedTuple

from tailrace.cli import CommandError
from tailrace.cli.secure import AUTHORITY

AUTHORITY_DAYS = 3650
DAYS = 365
# From when on one is told that a certificate ends: the default of ssl.expiry.warning.days.
WARNING_DAYS = 30


class Facts(NamedTuple):
    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime

    @property
    def days_left(self) -> int:
        return (self.not_after - datetime.now(UTC)).days


def make_authority(folder: str, name: str = "tailrace") -> None:
    """Nothing happens where there is one."""
    if os.path.exists(f"{folder}/{AUTHORITY}.key"):
        return
    x509, ec = _load()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{name} authority")
    builder = _builder(subject, subject, key, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    certificate = _sign(builder, key)
    write_secret(f"{folder}/{AUTHORITY}.key", _key_pem(key))
    _write(f"{folder}/{AUTHORITY}.pem", _certificate_pem(certificate))


def make_certificate(folder: str, name: str, names: Sequence[str]) -> str:
    """The path of NAME.pem, which the authority of the folder signs; `names` are those of hosts, and addresses."""
    x509, ec = _load()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        authority = x509.load_pem_x509_certificate(_read(f"{folder}/{AUTHORITY}.pem"))
        authority_key = load_pem_private_key(_read(f"{folder}/{AUTHORITY}.key"), None)
    except ValueError as error:
        raise CommandError(f"the authority in {folder} cannot be read: {error}") from None
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), authority.subject, key, DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    both = [x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    builder = builder.add_extension(issuer_key, critical=False)
    if names:
        general = [_general_name(each) for each in dict.fromkeys(names)]
        builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
    certificate = _sign(builder, authority_key)
    path = f"{folder}/{name}.pem"
    write_secret(path, _key_pem(key) + _certificate_pem(certificate) + _certificate_pem(authority))
    return path


def read_facts(path: str) -> Facts:
    """Of the first certificate in a PEM file."""
    x509, _ec = _load()
    try:
        certificate = x509.load_pem_x509_certificates(_read(path))[0]
    except (ValueError, IndexError) as error:
        raise CommandError(f"{path} holds no certificate that can be read: {error}") from None
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(str(each.value) for each in extension.value)
    except x509.ExtensionNotFound:
        names = ()
    return Facts(
        certificate.subject.rfc4514_string(),
        certificate.issuer.rfc4514_string(),
        names,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )


def write_secret(path: str, data: bytes) -> None:
    """Readable for its owner alone, from its first byte on; whole or not at all."""
    temporary = f"{path}.tmp"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None


def _load() -> tuple[Any, Any]:
    """Sixty milliseconds, and an extra: only who makes or shows certificates needs it."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        remedy = "pip install 'tailrace[security]'"
        raise CommandError(f"certificates are made by the package cryptography: {remedy}") from None
    return x509, ec


def _name(text: str) -> Any:
    x509, _ec = _load()
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(subject: Any, issuer: Any, key: Any, days: int) -> Any:
    x509, _ec = _load()
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ.
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> Any:
    x509, _ec = _load()
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: Any, key: Any) -> Any:
    from cryptography.hazmat.primitives.hashes import SHA256

    return builder.sign(key, SHA256())


def _general_name(text: str) -> Any:
    x509, _ec = _load()
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def _certificate_pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    pem: bytes = certificate.public_bytes(Encoding.PEM)
    return pem
