"""Certificates of every kind, good and bad, made by the package cryptography."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


class Forged:
    """A key with a certificate: of `issuer`, or its own. `days` are those of its begin and end, counted from now."""

    def __init__(
        self,
        name: str,
        issuer: Forged | None = None,
        *,
        days: tuple[float, float] = (-1, 400),
        usage: Sequence[x509.ObjectIdentifier] = (CLIENT, SERVER),
        is_authority: bool = False,
        path_length: int | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.issuer = issuer
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if issuer is None else issuer.certificate.subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=path_length), critical=True)
        )
        if usage and not is_authority:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general, hosts))), critical=False)
        self.certificate = builder.sign(self.key if issuer is None else issuer.key, SHA256())

    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str = "") -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def between(self) -> list[Forged]:
        """The authorities that signed it, without the root."""
        issuer = self.issuer
        return [] if issuer is None or issuer.issuer is None else [issuer, *issuer.between()]

    def store(self, path: Path) -> str:
        """Key and certificates, as ssl.keystore.location wants them."""
        path.write_text(self.key_pem() + self.pem() + "".join(each.pem() for each in self.between()))
        return str(path)

    def store_pkcs12(self, path: Path, password: str) -> str:
        authorities = [each.certificate for each in self.between()]
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, authorities, encryption)
        )
        return str(path)

    def revocations(self, revoked: Sequence[Forged], *, days: float = 400, encoding: Encoding = Encoding.PEM) -> bytes:
        """The list of this authority."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        builder = builder.last_update(now - timedelta(days=1000)).next_update(now + timedelta(days=days))
        for each in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(each.certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(now).build())
        return builder.sign(self.key, SHA256()).public_bytes(encoding)


def signed_with_sha1(name: str, issuer: Forged) -> Forged:
    """By openssl: the package does not sign so any more."""
    forged = Forged(name, issuer)
    with tempfile.TemporaryDirectory() as folder:
        for file, text in {"own": forged.key_pem(), "key": issuer.key_pem(), "pem": issuer.pem()}.items():
            Path(folder, file).write_text(text)
        for command in (
            f"openssl req -new -key own -subj /CN={name} -out request",
            "openssl x509 -req -sha1 -in request -CA pem -CAkey key -CAcreateserial -days 9 -out signed",
        ):
            subprocess.run(command.split(), cwd=folder, check=True, capture_output=True, timeout=60)
        forged.certificate = x509.load_pem_x509_certificate(Path(folder, "signed").read_bytes())
    return forged


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
