"""From the `ssl.*` settings to an SSLContext, of the side that connects and of that which listens: reads the
certificates and keys, which must be PEM.

Java's own stores are recognised by their first bytes, and refused with the command that converts them.
Every refusal is a KafkaError INVALID_CONFIG that names the setting.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.model.errors import KafkaError
from tailrace.model.security import ClientAuth, Pem, TlsSettings
from tailrace.model.settings import invalid

_PEM_BEGIN = "-----BEGIN "
_JKS_MAGIC = bytes.fromhex("feedfeed")
_DER_SEQUENCE = b"\x30"
_TLS13_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def make_tls_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.is_host_checked
    # As in Java, whatever stands in the truststore is trusted, be it a root, an intermediate or the broker itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.minimum_version = min(_VERSIONS[name] for name in settings.versions)
    context.maximum_version = max(_VERSIONS[name] for name in settings.versions)
    if settings.authorities is None:
        context.load_default_certs()
    else:
        _load_authorities(context, settings.authorities)
    if settings.certificates is not None:
        _load_own(context, settings.certificates, settings.key, settings.key_password)
    return context


def make_server_context(settings: TlsSettings) -> ssl.SSLContext:
    if settings.certificates is None:
        raise invalid(
            "ssl.keystore.location",
            "(nothing)",
            "A listener with TLS needs a certificate: name a PEM file that holds it and its key",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client that comes again shakes hands in full: that costs little more, and its certificate is looked at again.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    context.minimum_version = min(_VERSIONS[name] for name in settings.versions)
    context.maximum_version = max(_VERSIONS[name] for name in settings.versions)
    if settings.cipher_suites:
        _choose_suites(context, settings.cipher_suites)
    _load_own(context, settings.certificates, settings.key, settings.key_password)
    if settings.client_auth is not ClientAuth.NONE:
        _ask_clients(context, settings)
    return context


def _ask_clients(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.authorities is None:
        reason = "Whose certificates are taken? Name the authorities in ssl.truststore.location (a PEM file)"
        raise invalid("ssl.client.auth", settings.client_auth, reason)
    _load_authorities(context, settings.authorities)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    is_required = settings.client_auth is ClientAuth.REQUIRED
    context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL


def _choose_suites(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    """By Java's names. Python cannot choose among the suites of TLS 1.3: they are there together, or not at all."""
    newer = _TLS13_SUITES & set(names)
    older = [name for name in names if name not in newer]
    if newer and newer != _TLS13_SUITES:
        missing = ",".join(sorted(_TLS13_SUITES - newer))
        reason = f"Of the suites of TLS 1.3 all or none can be had here: add {missing}"
        raise invalid("ssl.cipher.suites", ",".join(names), reason)
    if not newer:
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    if not older:
        context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_3)
        return
    try:
        context.set_ciphers(":".join(_openssl_name(name) for name in older))
    except ssl.SSLError:
        raise invalid("ssl.cipher.suites", ",".join(names), "OpenSSL has none of the suites of TLS 1.2") from None


def _openssl_name(name: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is ECDHE-RSA-AES256-GCM-SHA384 there."""
    found = re.fullmatch(
        r"TLS_(ECDHE_RSA|ECDHE_ECDSA|DHE_RSA|RSA)_WITH_(?:AES_(128|256)_(GCM|CBC)|(CHACHA20_POLY1305))_(SHA|SHA256|SHA384)",
        name,
    )
    if found is None:
        raise invalid("ssl.cipher.suites", name, "No such suite is known: write Java's name of one of TLS 1.2 or 1.3")
    keys, bits, mode, chacha, digest = found.groups()
    exchange = "" if keys == "RSA" else keys.replace("_", "-") + "-"
    if chacha:
        return f"{exchange}CHACHA20-POLY1305"
    return f"{exchange}AES{bits}-{'GCM-' if mode == 'GCM' else ''}{digest}"


def _load_authorities(context: ssl.SSLContext, source: Pem) -> None:
    try:
        context.load_verify_locations(cadata=_read(source))
    except ssl.SSLError as error:
        raise _refusal(source, f"It holds no certificate that can be read ({_reason(error)})") from None


def _load_own(context: ssl.SSLContext, certificates: Pem, key: Pem | None, password: str | None) -> None:
    chain_text = _read(certificates)
    key_text = None if key is None else _read(key)

    def give_password() -> str:
        # Without this OpenSSL would ask on the terminal.
        return password or ""

    try:
        with _file_of(chain_text) as chain_path:
            if key_text is None:
                context.load_cert_chain(chain_path, password=give_password)
            else:
                with _file_of(key_text) as key_path:
                    context.load_cert_chain(chain_path, key_path, password=give_password)
    except ssl.SSLError as error:
        raise _own_refusal(certificates, key or certificates, key_text or chain_text, password, error) from None


def _own_refusal(certificates: Pem, key: Pem, key_text: str, password: str | None, error: ssl.SSLError) -> KafkaError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return _refusal(certificates, f"The key in {key.setting} belongs to another certificate")
    if "PRIVATE KEY" not in key_text:
        return _refusal(key, "It holds no private key: put the key and its certificates into one PEM file")
    if "ENCRYPTED" in key_text:
        what = "is wrong" if password else "is missing"
        return _refusal(key, f"Its key is encrypted, and the password {what}: set ssl.key.password")
    return _refusal(certificates, f"It cannot be read ({_reason(error)}): a certificate and its key are expected")


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    """The ssl module takes keys from files alone. This one is readable for the owner only, and gone after."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def _read(source: Pem) -> str:
    if source.text is not None:
        data = source.text.encode()
    else:
        assert source.path is not None, "a Pem has a path or a text"
        try:
            with open(source.path, "rb") as file:
                data = file.read()
        except OSError as error:
            reason = f"The file cannot be read on this machine: {error.strerror}"
            raise invalid(source.setting, source.path, reason) from None
    return _checked_pem(source, data)


def _checked_pem(source: Pem, data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if _PEM_BEGIN in text:
        return _rewrapped(text)
    path = source.path or "STORE"
    to_pem = f"openssl pkcs12 -in {path} -out {path}.pem -nodes"
    if data.startswith(_JKS_MAGIC):
        convert = f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        rest = to_pem.replace(f"-in {path} ", f"-in {path}.p12 ")
        raise _refusal(source, f"It is a Java key store (JKS). Convert it to PEM by: {convert} && {rest}")
    if data.startswith(_DER_SEQUENCE):
        raise _refusal(source, f"It is a PKCS12 store. Convert it to PEM by: {to_pem}")
    raise _refusal(source, "It is not PEM: a text with lines such as -----BEGIN CERTIFICATE-----")


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


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def _refusal(source: Pem, reason: str) -> KafkaError:
    return invalid(source.setting, source.path or "(a text)", reason)
