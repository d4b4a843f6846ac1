"""Certificates for tests, made by openssl: an authority, brokers and clients that it signs, and a stranger."""

import subprocess
from pathlib import Path
from typing import NamedTuple

KEY_PASSWORD = "key-secret"
DAYS = "2"


class Identity(NamedTuple):
    certificate: Path
    key: Path

    def joined(self) -> Path:
        """Key and certificate in one file, as ssl.keystore.location wants them."""
        path = self.certificate.with_suffix(".both.pem")
        path.write_text(self.key.read_text() + self.certificate.read_text())
        return path


class Authority:
    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", DAYS),
            *("-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate),
        )

    def sign(self, name: str, *, subject_alt_name: str = "") -> Identity:
        identity = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={subject_alt_name}\n" if subject_alt_name else "")
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", identity.key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-days", DAYS, "-extfile", extensions, "-out", identity.certificate),
        )
        return identity


def encrypted_key(identity: Identity) -> Path:
    path = identity.key.with_suffix(".encrypted.key")
    _openssl("pkcs8", "-topk8", "-in", identity.key, "-out", path, "-passout", f"pass:{KEY_PASSWORD}")
    return path


def pkcs12(identity: Identity) -> Path:
    path = identity.key.with_suffix(".p12")
    _openssl(
        *("pkcs12", "-export", "-inkey", identity.key, "-in", identity.certificate, "-out", path),
        *("-passout", f"pass:{KEY_PASSWORD}"),
    )
    return path


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
