"""From the `sasl.oauthbearer.*` settings of a listener to a judge of tokens.

Every refusal is a KafkaError INVALID_CONFIG that names the setting, the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

from tailrace.broker.auth.bearer.checks import Expected
from tailrace.broker.auth.bearer.judge import Judge
from tailrace.broker.auth.bearer.source import KeySource, Pace
from tailrace.client.security.settings import parse_token_tls
from tailrace.model import events
from tailrace.model.ports import Ports, WebQuestion
from tailrace.model.settings import invalid

_log = events.logger("tokens")
_KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"


async def make_judge(
    texts: Mapping[str, str], options: Mapping[str, str], ports: Ports, *, prefix: str, under_way_max: int
) -> Judge:
    """`prefix` is that of the listener and the mechanism, `options` those of its login module. A file of keys must be
    there at once; an address may come later, and nobody is let in before."""
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        reason = "It checks signatures by PyJWT and cryptography, which are missing: pip install 'tailrace[security]'"
        raise invalid("sasl.enabled.mechanisms", "OAUTHBEARER", reason)
    url = texts.get(_KEYS_URL)
    if not url:
        reason = (
            "OAUTHBEARER needs the keys of those who sign tokens: write the address of a JSON Web Key Set, https: or "
            "file:. Tokens that nobody has signed are not taken"
        )
        raise invalid(prefix + _KEYS_URL, "(nothing)", reason)
    if not texts.get("sasl.oauthbearer.expected.audience"):
        setting = prefix + "sasl.oauthbearer.expected.audience"
        _log.warning("tokens that are meant for others are taken too: say who is meant here", setting=setting)
    pace = Pace(
        refresh_ms=int(texts["sasl.oauthbearer.jwks.endpoint.refresh.ms"]),
        backoff_ms=int(texts["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"]),
        backoff_max_ms=int(texts["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"]),
        unknown_key_ms=int(texts["sasl.oauthbearer.jwks.endpoint.unknown.key.ms"]),
    )
    source = KeySource(url, _reader(url, texts, options, ports, prefix), ports, pace)
    if url.startswith("file:"):
        failure = await source.read_now()
        if failure is not None:
            raise invalid(prefix + _KEYS_URL, url, f"No keys can be read from there: {failure}")
    source.open()
    return Judge(source, _parse_expected(texts), ports, under_way_max=under_way_max)


def check_address(setting: str, url: str, texts: Mapping[str, str]) -> None:
    """Of an address that nodes ask on the web."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("https", "http"):
        raise invalid(setting, url, "Write an address such as https://issuer.example/keys")
    if parts.username is not None or parts.password is not None:
        raise invalid(setting, "(hidden)", "Write no user and no password into an address: others can read it")
    if parts.scheme == "http" and url not in texts.get("sasl.oauthbearer.allowed.urls", "").split(","):
        reason = (
            "Whoever is on the way can change what http: brings: write https:, or, if nobody is, the same address into "
            "sasl.oauthbearer.allowed.urls"
        )
        raise invalid(setting, url, reason)


def _reader(
    url: str, texts: Mapping[str, str], options: Mapping[str, str], ports: Ports, prefix: str
) -> Callable[[], bytes]:
    max_bytes = int(texts["sasl.oauthbearer.jwks.endpoint.max.bytes"])
    if url.startswith("file:"):
        path = unquote(urlsplit(url).path)
        return lambda: _read_file(ports, path, max_bytes)
    check_address(prefix + _KEYS_URL, url, texts)
    question = WebQuestion(
        url, int(texts["sasl.oauthbearer.jwks.endpoint.timeout.ms"]), max_bytes, tls=parse_token_tls(options)
    )
    web = ports.web
    assert web is not None, "these ports have no web"
    return lambda: web.ask(question)


def _read_file(ports: Ports, path: str, max_bytes: int) -> bytes:
    size = ports.disk.size(path)
    if size > max_bytes:
        raise ValueError(f"it has {size} bytes, more than sasl.oauthbearer.jwks.endpoint.max.bytes={max_bytes}")
    return ports.disk.read(path)


def _parse_expected(texts: Mapping[str, str]) -> Expected:
    audiences = texts.get("sasl.oauthbearer.expected.audience", "").split(",")
    return Expected(
        algorithms=tuple(filter(None, texts["sasl.oauthbearer.algorithms"].split(","))),
        audiences=tuple(audience.strip() for audience in audiences if audience.strip()),
        issuer=texts.get("sasl.oauthbearer.expected.issuer"),
        scope_claim=texts["sasl.oauthbearer.scope.claim.name"],
        user_claim=texts["sasl.oauthbearer.sub.claim.name"],
        skew_s=int(texts["sasl.oauthbearer.clock.skew.seconds"]),
    )
