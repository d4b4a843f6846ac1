"""What the commands that talk to a broker share: where the broker is, how to log in, and how a failure is told.

A command hands over an async function of a Cluster; it runs over the real ports. A KafkaError ends the command with
its message, one line.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from tailrace.cli import CommandError
from tailrace.client.connection import Address, ConnectionLimits
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.security.properties import parse_properties
from tailrace.client.security.settings import PLAINTEXT, SECRET_SETTINGS, SECURITY_SETTINGS, Security, parse_security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.cluster import open_cluster

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Work = Callable[[Cluster, argparse.Namespace], Awaitable[int]]


def add_client_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        type=_addresses,
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT,...",
        help=f"brokers to ask first (default: {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long an answer may take (default: 30)",
    )
    parser.add_argument(
        "--command-config",
        type=_security,
        default=PLAINTEXT,
        metavar="FILE",
        help="security.protocol, sasl.* and ssl.* settings in a .properties file, as for Kafka's own tools",
    )


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Another cluster, from which something is taken."""
    parser.add_argument(
        "--source", type=_addresses, required=True, metavar="HOST:PORT,...", help="brokers of the source"
    )
    add_source_login(parser)


def add_source_login(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source-config",
        type=_security,
        default=PLAINTEXT,
        metavar="FILE",
        help="how this command logs in there, as --command-config; brokers have files of their own",
    )


def add_client_work(parser: argparse.ArgumentParser, work: Work) -> None:
    """`work` is what the command does."""
    add_client_options(parser)
    parser.set_defaults(
        run=lambda options: run_client(options, lambda cluster: work(cluster, options)), refuse=parser.error
    )


def _addresses(text: str) -> tuple[Address, ...]:
    try:
        return parse_bootstrap(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _security(path: str) -> Security:
    try:
        with open(path, encoding="utf-8") as file:
            settings = parse_properties(file.read())
        security = parse_security(settings)
        if any(settings.get(name) for name in SECRET_SETTINGS):
            from tailrace.cli.secure.passwords import warn_if_open

            warn_if_open(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"{path} is not a text in UTF-8") from None
    except KafkaError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.message}") from None
    for name in sorted(settings.keys() - SECURITY_SETTINGS):
        print(f"tailrace: {name} in {path} is ignored: only settings of security are taken from it", file=sys.stderr)
    return security


def positive_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a time in seconds above 0")
    return seconds


def run_client(options: argparse.Namespace, work: Callable[[Cluster], Awaitable[int]]) -> int:
    try:
        return asyncio.run(_run(options, work))
    except KafkaError as error:
        raise CommandError(failure_text(error)) from None


async def _run(options: argparse.Namespace, work: Callable[[Cluster], Awaitable[int]]) -> int:
    timeout_ms = int(options.timeout * 1000)
    limits = ConnectionLimits(connect_timeout_ms=min(timeout_ms, 10_000), request_timeout_ms=timeout_ms)
    cluster = open_cluster(options.bootstrap, security=options.command_config, limits=limits)
    try:
        return await work(cluster)
    finally:
        cluster.close()


def failure_text(error: KafkaError) -> str:
    """The code's name helps to find more about it; for a broker that is not there it would only confuse."""
    if not error.message:
        return error.code.name
    if error.code is ErrorCode.NETWORK_EXCEPTION:
        return error.message
    return f"{error.message} ({error.code.name})"


def key_and_value(word: str) -> tuple[str, str]:
    """The type of a `--set KEY=VALUE` option."""
    name, equals, value = word.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{word!r} is not KEY=VALUE, such as retention.ms=3600000")
    return name.strip(), value.strip()
