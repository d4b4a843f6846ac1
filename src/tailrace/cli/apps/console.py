"""`tailrace console`: the cluster in a browser, for any Kafka."""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
import sys
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.apps.keeping import add_keep_option, keep
from tailrace.cli.session import add_client_options, positive_seconds

if TYPE_CHECKING:
    from tailrace.apps.console.doors.oidc import OidcOptions
    from tailrace.apps.console.doors.visitors import OpenRegistry
    from tailrace.apps.console.reading.masks import Rule

DESCRIPTION = (
    "Serve a console for the cluster: topics, messages, groups, brokers, in a browser. Where the cluster wants logins, "
    "each visitor logs in as one of its users, and sees and does what that user may; the credential of "
    "--command-config is only used for the charts."
)
EXAMPLES = """\
examples:
  tailrace console                                        http://127.0.0.1:9080 for the cluster at 127.0.0.1:9092
  tailrace console --bootstrap kafka.example:9092         any Kafka
  tailrace console --port 0 --read-only                   a free port, which is printed; nothing can be changed
  tailrace console --command-config client.properties     a cluster with TLS and logins
"""

DEFAULT_PORT = 9080
_SCOPE = "openid profile"
# A page waits for it.
_REGISTRY_TIMEOUT_S = 5.0
# Each open page holds one, for news.
_CONNECTIONS_MAX = 500
# What is under way when the console ends.
_GRACE_S = 2


def register(parser: argparse.ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0 for a free one (default: {DEFAULT_PORT})")
    parser.add_argument("--name", action="append", default=[], metavar="HOST", help="a name browsers use for this host")
    parser.add_argument("--read-only", action="store_true", help="show everything, change nothing")
    parser.add_argument(
        "--alerts", metavar="FILE", help="show what holds now, as `tailrace alerts run --status FILE` keeps it"
    )
    parser.add_argument(
        "--pipelines", metavar="DIR", help="show the pipelines whose runs are told there (docs/spark/operating.md)"
    )
    parser.add_argument(
        "--schema-registry", metavar="URL", help="show its schemas, and open keys and values that name one"
    )
    parser.add_argument("--masks", metavar="FILE", help="TOML with what of the records is hidden (docs/console.md)")
    parser.add_argument("--oidc-issuer", metavar="URL", help="visitors may log in there; their token is the cluster's")
    parser.add_argument("--oidc-client-id", metavar="ID", help="under which the issuer knows this console")
    parser.add_argument("--oidc-secret-file", metavar="FILE", help="its first line is the console's secret, if any")
    parser.add_argument("--oidc-scope", default=_SCOPE, metavar="WORDS", help=f"what is asked for (default: {_SCOPE})")
    parser.add_argument("--address", default="", metavar="URL", help="of this console for browsers, behind a proxy")
    parser.add_argument("--ca", default="", metavar="FILE", help="PEM of authorities of the registry and the issuer")
    parser.add_argument("--tls-certificate", metavar="FILE", help="serve https, with this PEM file")
    parser.add_argument("--tls-key", metavar="FILE", help="the key of the certificate, if it is not in the same file")
    parser.add_argument(
        "--interval", type=positive_seconds, default=5.0, metavar="SECONDS", help="how often to look (default: 5)"
    )
    parser.add_argument("--groups-max", type=int, default=1000, metavar="N", help="groups to show (default: 1000)")
    parser.add_argument("--series-max", type=int, default=4000, metavar="N", help="charts to remember (default: 4000)")
    parser.add_argument(
        "--readers-max", type=int, default=200, metavar="N", help="visitors who read messages at a time (default: 200)"
    )
    add_keep_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return keep("console", lambda parent: _run(options, parent)) if options.keep else _run(options)


def _run(options: argparse.Namespace, parent: int | None = None) -> int:
    """`parent` is a pipe that ends with the process that started this one."""
    try:
        import uvicorn

        from tailrace.apps.console.app import make_app
    except ImportError as error:
        raise CommandError(
            f"the console needs packages that are not installed ({error.name}): pip install 'tailrace[console]'"
        ) from None
    from tailrace.apps.console.web import Options
    from tailrace.client.connection import ConnectionLimits
    from tailrace.real.cluster import open_cluster

    if not _is_loopback(options.host) and options.command_config.sasl is None and not options.read_only:
        print(
            f"tailrace: anyone who reaches {options.host or '*'} may change everything: the cluster wants no login; "
            "see --read-only",
            file=sys.stderr,
        )
    timeout_ms = int(options.timeout * 1000)
    limits = ConnectionLimits(connect_timeout_ms=min(timeout_ms, 10_000), request_timeout_ms=timeout_ms)
    app = make_app(
        lambda security: open_cluster(
            options.bootstrap, security=security, client_id="tailrace-console", limits=limits
        ),
        options.command_config,
        Options(
            interval_s=options.interval,
            groups_max=options.groups_max,
            series_max=options.series_max,
            readers_max=options.readers_max,
            is_read_only=options.read_only,
            is_behind_tls=options.tls_certificate is not None,
            alerts_file=options.alerts,
            pipelines_folder=options.pipelines,
            masks=_masks(options),
        ),
        open_registry=_registry(options),
        oidc_options=_oidc(options),
        bootstrap=",".join(f"{each.host}:{each.port}" for each in options.bootstrap),
        hosts=_hosts(options),
        parent=parent,
    )
    sock = _bind(options)
    host, port = sock.getsockname()[:2]
    scheme = "http" if options.tls_certificate is None else "https"
    print(f"console: {scheme}://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ssl_certfile=options.tls_certificate,
        ssl_keyfile=options.tls_key,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=_GRACE_S,
    )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await app.state.stop()
            await super().shutdown(sockets)

    Server(config).run(sockets=[sock])
    return 0


def _masks(options: argparse.Namespace) -> tuple[Rule, ...]:
    from tailrace.apps.console.reading.masks import MaskError, read_masks

    try:
        return read_masks(options.masks) if options.masks else ()
    except MaskError as error:
        raise CommandError(f"--masks: {error}") from None


def _registry(options: argparse.Namespace) -> OpenRegistry | None:
    """Who asks is the visitor; where the cluster wants no login, whoever the address or the environment names."""
    if options.schema_registry is None:
        return None
    from tailrace.cli.values.framed import USER_INFO
    from tailrace.real.registry.client import RegistryAddress, RegistryClient

    def open_registry(user: str, secret: str) -> RegistryClient:
        own = os.environ.get(USER_INFO) if options.command_config.sasl is None else None
        return RegistryClient(
            RegistryAddress(
                options.schema_registry,
                user_info=f"{user}:{secret}" if user else own,
                token=secret if secret and not user else None,
                ca_file=options.ca or None,
                timeout_s=_REGISTRY_TIMEOUT_S,
            )
        )

    try:
        open_registry("", "")
    except ValueError as error:
        raise CommandError(f"--schema-registry: {error}") from None
    return open_registry


def _oidc(options: argparse.Namespace) -> OidcOptions | None:
    if options.oidc_issuer is None:
        return None
    from tailrace.apps.console.doors.oidc import OidcOptions, check_issuer
    from tailrace.cli.secure.passwords import read_password
    from tailrace.model.security import Store, TlsSettings

    if options.command_config.sasl is None:
        raise CommandError(
            "--oidc-issuer needs a cluster that wants logins: give --command-config with security.protocol SASL_SSL"
        )
    if not options.oidc_client_id:
        raise CommandError("--oidc-issuer needs --oidc-client-id: under which the issuer knows this console")
    try:
        check_issuer(options.oidc_issuer)
    except ValueError as error:
        raise CommandError(f"--oidc-issuer: {error}") from None
    return OidcOptions(
        options.oidc_issuer,
        options.oidc_client_id,
        client_secret=read_password(options.oidc_secret_file) if options.oidc_secret_file else "",
        scope=options.oidc_scope,
        address=options.address,
        tls=TlsSettings(authorities=Store("--ca", path=options.ca)) if options.ca else None,
    )


def _bind(options: argparse.Namespace) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((options.host, options.port))
        # From here on a browser waits, and is not refused.
        sock.listen(128)
    except (OSError, OverflowError) as error:
        sock.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(
            f"cannot listen on {options.host}:{options.port}: {reason}. Choose another --port, 0 for a free one"
        ) from None
    return sock


def _hosts(options: argparse.Namespace) -> list[str]:
    """The names under which browsers may ask. On a loopback address only its own: else a page from anywhere could
    lead its name here and read along."""
    if _is_loopback(options.host):
        return ["localhost", "127.0.0.1", "[::1]", options.host, *options.name]
    return options.name or ["*"]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
