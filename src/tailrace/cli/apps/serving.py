"""Where an app with a REST API listens, and with which certificate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tailrace.cli import CommandError

if TYPE_CHECKING:
    from tailrace.apps.serving import Place
    from tailrace.model.security import TlsSettings


def add_serving_options(parser: argparse.ArgumentParser, default_port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=default_port, help=f"port, 0 for a free one (default: {default_port})"
    )
    parser.add_argument(
        "--tls-config",
        metavar="FILE",
        help="serve https: ssl.keystore.* and so on in a .properties file; ssl.client.auth asks for certificates",
    )


def check_port(options: argparse.Namespace) -> None:
    if not 0 <= options.port <= 65535:
        raise CommandError(f"--port {options.port}: a port is a number from 0 (a free one) to 65535")


def place_of(options: argparse.Namespace) -> Place:
    from tailrace.apps.serving import Place

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
