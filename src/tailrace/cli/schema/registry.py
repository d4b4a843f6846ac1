"""`tailrace registry`: a schema registry in the foreground, for any Kafka.

Prints one line on stdout, `registry: <url>`, once clients can ask.
"""

from __future__ import annotations

import argparse
import asyncio

from tailrace.cli import CommandError
from tailrace.cli.apps.keeping import add_keep_option, keep
from tailrace.cli.apps.serving import add_serving_options, check_port, place_of
from tailrace.cli.logs import add_log_options, start_logging
from tailrace.cli.session import add_client_options, failure_text, key_and_value

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
    add_serving_options(parser, DEFAULT_PORT)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=key_and_value,
        metavar="KEY=VALUE",
        help="any setting of a registry, by Confluent's name; repeatable (docs/schemas.md lists them)",
    )
    add_keep_option(parser)
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    check_port(options)
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
            serve(place_of(options), options.bootstrap, options.command_config, settings, _print_ready, parent=parent)
        )
    except KafkaError as error:
        raise CommandError(failure_text(error)) from None
    except OSError as error:
        where = f"{options.host}:{options.port}"
        raise CommandError(f"cannot listen on {where}: {error.strerror or error}. Choose another --port") from None
    return 0


def _print_ready(url: str) -> None:
    print(f"registry: {url}", flush=True)
