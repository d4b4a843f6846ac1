"""`tailrace registry`: a schema registry in the foreground, for any Kafka.

Prints one line on stdout, `registry: <url>`, once clients can ask.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.apps.keeping import add_keep_option, keep
from tailrace.cli.logs import add_log_options, start_logging
from tailrace.cli.session import add_client_options, failure_text, key_and_value

if TYPE_CHECKING:
    from tailrace.apps.registry.process import Place
    from tailrace.model.security import TlsSettings

DESCRIPTION = (
    "Start a schema registry with Confluent's REST API in the foreground; it keeps schemas in the topic _schemas of "
    "any Kafka. Several may run beside each other: they elect one who writes."
)
EXAMPLES = """\
examples:
  tailrace registry                                            on 127.0.0.1:8081, for the broker on 127.0.0.1:9092
  tailrace registry --bootstrap one:9092,two:9092 --host 0.0.0.0 --set host.name=registry-1.example
  tailrace registry --command-config client.properties --tls-config registry.properties
  tailrace registry --set schema.compatibility.level=FULL
"""
DEFAULT_PORT = 8081


def register(parser: argparse.ArgumentParser) -> None:
    add_client_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"port, 0 for a free one (default: {DEFAULT_PORT})"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=key_and_value,
        metavar="KEY=VALUE",
        help="any setting of a registry, by Confluent's name; repeatable (docs/schemas.md lists them)",
    )
    parser.add_argument(
        "--tls-config",
        metavar="FILE",
        help="serve https: ssl.keystore.* and so on in a .properties file; ssl.client.auth asks for certificates",
    )
    add_keep_option(parser)
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if not 0 <= options.port <= 65535:
        raise CommandError(f"--port {options.port}: a port is a number from 0 (a free one) to 65535")
    start_logging(options)
    return keep("registry", lambda parent: _run(options, parent)) if options.keep else _run(options)


def _run(options: argparse.Namespace, parent: int | None = None) -> int:
    try:
        from tailrace.apps.registry.process import serve
        from tailrace.apps.registry.settings import parse_registry_settings
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the registry needs {error.name}, which is not installed: pip install 'tailrace[registry]'"
        ) from None
    from tailrace.model.errors import KafkaError

    try:
        settings = parse_registry_settings(dict(options.set))
        asyncio.run(
            serve(_place(options), options.bootstrap, options.command_config, settings, _print_ready, parent=parent)
        )
    except KafkaError as error:
        raise CommandError(failure_text(error)) from None
    except OSError as error:
        where = f"{options.host}:{options.port}"
        raise CommandError(f"cannot listen on {where}: {error.strerror or error}. Choose another --port") from None
    return 0


def _print_ready(url: str) -> None:
    print(f"registry: {url}", flush=True)


def _place(options: argparse.Namespace) -> Place:
    from tailrace.apps.registry.process import Place

    tls = None if options.tls_config is None else _read_tls(options.tls_config)
    return Place(options.host, options.port, tls)


def _read_tls(path: str) -> TlsSettings:
    from dataclasses import replace

    from tailrace.client.security.properties import parse_properties
    from tailrace.client.security.settings import parse_tls
    from tailrace.model.security import ClientAuth
    from tailrace.model.settings import invalid

    try:
        with open(path, encoding="utf-8") as file:
            settings = parse_properties(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from None
    asked = settings.get("ssl.client.auth", "none").strip().lower()
    try:
        client_auth = ClientAuth(asked)
    except ValueError:
        raise invalid("ssl.client.auth", asked, f"It must be one of: {', '.join(ClientAuth)}") from None
    return replace(parse_tls(settings), client_auth=client_auth)
