"""From the `ssl.*` settings to an SSLContext, of the side that connects and of that which listens; what its
certificates say of themselves; and whether two of them would come to terms.

`real.tls.stores` reads the files. Every refusal is a KafkaError INVALID_CONFIG that names the setting.
"""

from __future__ import annotations

import re
import ssl
from typing import NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import CertificateFacts, ClientAuth, Ending, Store, TlsSettings
from tailrace.model.settings import invalid
from tailrace.real.secret_files import warn_if_open
from tailrace.real.tls.distrust import WEAK_KEY, WEAK_SIGNATURE, cause_of_distrust
from tailrace.real.tls.facts import blocks_of, certificate_facts, list_ending
from tailrace.real.tls.stores import file_of, read_lists, read_pem, reason_of, refusal

_TLS13_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


_WEAKNESSES = {"CA_MD_TOO_WEAK": WEAK_SIGNATURE, "EE_KEY_TOO_SMALL": WEAK_KEY, "CA_KEY_TOO_SMALL": WEAK_KEY}
# Each flight of a handshake in memory takes one; there are four at most.
_FLIGHTS_MAX = 8


class TlsIdentity(NamedTuple):
    context: ssl.SSLContext
    own: CertificateFacts | None
    endings: tuple[Ending, ...]  # Of all that was read: own certificates, authorities and revocation lists.


def read_tls_identity(settings: TlsSettings, *, listens: bool) -> TlsIdentity:
    context = make_server_context(settings) if listens else make_tls_context(settings)
    own = () if settings.certificates is None else _facts(settings.certificates)
    others = () if settings.authorities is None or not _verifies(context) else _facts(settings.authorities)
    endings = [Ending(f"the certificate of {each.subject}", each.ends_ms) for each in dict.fromkeys((*own, *others))]
    if settings.revoked is not None and _verifies(context):
        endings += _list_endings(settings.revoked)
    return TlsIdentity(context, own[0] if own else None, tuple(endings))


def check_terms(server: TlsIdentity, client: TlsIdentity, host: str) -> None:
    """Raises KafkaError INVALID_CONFIG if a node with the one could not call a node with the other by that name. They
    shake hands in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.context.wrap_bio(to_client, to_server, server_hostname=host),
        server.context.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        for _ in range(_FLIGHTS_MAX):
            done = [_is_done(side) for side in sides]
            if all(done):
                return
    except ssl.SSLCertVerificationError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"the certificate is not trusted: {cause_of_distrust(error)}"
        ) from None
    except ssl.SSLError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"TLS failed: {reason_of(error)}") from None
    raise KafkaError(ErrorCode.INVALID_CONFIG, "TLS failed: the handshake does not come to an end")


def _is_done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _verifies(context: ssl.SSLContext) -> bool:
    return context.verify_mode is not ssl.CERT_NONE


def _facts(store: Store) -> tuple[CertificateFacts, ...]:
    try:
        return tuple(certificate_facts(each) for each in blocks_of(read_pem(store), "CERTIFICATE"))
    except ValueError as error:
        raise refusal(store, f"It holds a certificate that cannot be read: {error}") from None


def _list_endings(store: Store) -> list[Ending]:
    try:
        found = [list_ending(each) for each in blocks_of(read_lists(store), "X509 CRL")]
    except ValueError as error:
        raise refusal(store, f"It holds a revocation list that cannot be read: {error}") from None
    return [ending for ending in found if ending is not None]


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
    if settings.revoked is not None:
        _load_revoked(context, settings.revoked)
    if settings.certificates is not None:
        _load_own(context, settings.certificates, settings.key, settings.key_password)
    return context


def make_server_context(settings: TlsSettings) -> ssl.SSLContext:
    if settings.certificates is None:
        raise invalid(
            "ssl.keystore.location",
            "(nothing)",
            "A listener with TLS needs a certificate: name a PEM or PKCS12 file that holds it and its key",
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
        reason = "Whose certificates are taken? Name the authorities in ssl.truststore.location"
        raise invalid("ssl.client.auth", settings.client_auth, reason)
    _load_authorities(context, settings.authorities)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if settings.revoked is not None:
        _load_revoked(context, settings.revoked)
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


def _load_authorities(context: ssl.SSLContext, store: Store) -> None:
    try:
        context.load_verify_locations(cadata=read_pem(store))
    except ssl.SSLError as error:
        raise refusal(store, f"It holds no certificate that can be read ({reason_of(error)})") from None


def _load_revoked(context: ssl.SSLContext, store: Store) -> None:
    """A list is asked for of every authority between a certificate and what is trusted. An authority that another one
    has signed, and that is trusted by itself, has no list of its own there: then that of the certificate alone."""
    try:
        with file_of(read_lists(store)) as path:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise refusal(store, f"It holds no revocation list that can be read ({reason_of(error)})") from None
    is_rooted = all(each["subject"] == each["issuer"] for each in context.get_ca_certs())
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN if is_rooted else ssl.VERIFY_CRL_CHECK_LEAF


def _load_own(context: ssl.SSLContext, certificates: Store, key: Store | None, password: str | None) -> None:
    if (path := (key or certificates).path) is not None:
        warn_if_open(path)
    chain_text = read_pem(certificates)
    key_text = chain_text if key is None else read_pem(key)

    def give_password() -> str:
        # Without this OpenSSL would ask on the terminal.
        return password or ""

    try:
        with file_of(chain_text) as chain_path, file_of(key_text) as key_path:
            context.load_cert_chain(chain_path, key_path, password=give_password)
    except ssl.SSLError as error:
        raise _own_refusal(certificates, key or certificates, key_text, password, error) from None


def _own_refusal(
    certificates: Store, key: Store, key_text: str, password: str | None, error: ssl.SSLError
) -> KafkaError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return refusal(certificates, f"The key in {key.setting} belongs to another certificate")
    if "PRIVATE KEY" not in key_text:
        return refusal(key, "It holds no private key: put the key and its certificates into one file")
    if "ENCRYPTED" in key_text:
        what = "is wrong" if password else "is missing"
        return refusal(key, f"Its key is encrypted, and the password {what}: set ssl.key.password")
    if error.reason in _WEAKNESSES:
        return refusal(certificates, f"Its certificate is too weak: {_WEAKNESSES[error.reason]}")
    return refusal(certificates, f"It cannot be read ({reason_of(error)}): a certificate and its key are expected")
