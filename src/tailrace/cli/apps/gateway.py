"""`tailrace gateway`: produce and consume by HTTP, for any Kafka.

Prints one line on stdout, `gateway: <url>`, once it serves.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.apps.keeping import add_keep_option, keep
from tailrace.cli.apps.serving import add_serving_options, check_port, place_of
from tailrace.cli.logs import add_log_options, start_logging
from tailrace.cli.session import add_client_options, failure_text, key_and_value

if TYPE_CHECKING:
    from tailrace.apps.gateway.web import RegistryPlace

DESCRIPTION = (
    "Serve topics by HTTP: Confluent's REST API v3, a plain JSON form, server-sent events and WebSockets. Where the "
    "cluster wants logins, everything is done with the caller's own (Basic or Bearer); that of --command-config only "
    "says how."
)
EXAMPLES = """\
examples:
  tailrace gateway                                         on 127.0.0.1:8082, for the broker on 127.0.0.1:9092
  tailrace gateway --bootstrap one:9092,two:9092 --host 0.0.0.0
  tailrace gateway --command-config client.properties --tls-config gateway.properties
  curl -d '[{"value": "hello"}]' -H 'Content-Type: application/json' http://127.0.0.1:8082/topics/orders
  curl -N 'http://127.0.0.1:8082/topics/orders/events?from=earliest'
"""
DEFAULT_PORT = 8082


def register(parser: argparse.ArgumentParser) -> None:
    add_client_options(parser)
    add_serving_options(parser, DEFAULT_PORT)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=key_and_value,
        metavar="KEY=VALUE",
        help="any setting of a gateway; repeatable (docs/gateway.md lists them)",
    )
    parser.add_argument("--name", action="append", default=[], metavar="HOST", help="a name browsers use for this host")
    parser.add_argument(
        "--schema-registry", metavar="URL", help="records of type AVRO, JSONSCHEMA and PROTOBUF, by this registry"
    )
    parser.add_argument("--schema-registry-ca", metavar="FILE", help="whom to trust as its authority, in PEM")
    add_keep_option(parser)
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    check_port(options)
    start_logging(options)
    return keep("gateway", lambda parent: _run(options, parent)) if options.keep else _run(options)


def _run(options: argparse.Namespace, parent: int | None = None) -> int:
    try:
        from tailrace.apps.gateway.process import serve
        from tailrace.apps.gateway.settings import parse_gateway_settings
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the gateway needs {error.name}, which is not installed: pip install 'tailrace[gateway]'"
        ) from None
    from tailrace.model.errors import KafkaError

    try:
        settings = parse_gateway_settings(dict(options.set))
        registry = _registry(options)
        if options.command_config.sasl is not None and "none" in settings.authentication.split(","):
            print("tailrace: whoever reaches this gateway acts with its login: authentication=none", file=sys.stderr)
        asyncio.run(
            serve(
                place_of(options),
                options.bootstrap,
                options.command_config,
                settings,
                _print_ready,
                names=options.name,
                registry=registry,
                parent=parent,
            )
        )
    except KafkaError as error:
        raise CommandError(failure_text(error)) from None
    except OSError as error:
        where = f"{options.host}:{options.port}"
        raise CommandError(f"cannot listen on {where}: {error.strerror or error}. Choose another --port") from None
    return 0


def _registry(options: argparse.Namespace) -> RegistryPlace | None:
    if options.schema_registry is None:
        if options.schema_registry_ca is not None:
            raise CommandError("--schema-registry-ca needs --schema-registry URL")
        return None
    from tailrace.apps.gateway.web import RegistryPlace
    from tailrace.real.registry.client import RegistryAddress

    try:
        RegistryAddress(options.schema_registry).check()
    except ValueError as error:
        raise CommandError(f"--schema-registry: {error}") from None
    return RegistryPlace(options.schema_registry, options.schema_registry_ca)


def _print_ready(url: str) -> None:
    print(f"gateway: {url}", flush=True)
