"""`tailrace registry`: a schema registry in the foreground, for any Kafka.

Prints one line on stdout, `registry: <url>`, once clients can ask.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from tailrace.cli import CommandError
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
_STDIN = 0
_RESTART_PAUSE_S = 0.5
_RESTART_PAUSE_MAX_S = 10.0
_LONG_LIFE_S = 30.0


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
    parser.add_argument(
        "--keep",
        action="store_true",
        help="start it again whenever it dies, until standard input ends (this is how `tailrace up` runs it)",
    )
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if not 0 <= options.port <= 65535:
        raise CommandError(f"--port {options.port}: a port is a number from 0 (a free one) to 65535")
    start_logging(options)
    return _keep(options) if options.keep else _run(options)


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


# --- kept alive


def _keep(options: argparse.Namespace) -> int:
    """This process only watches; the registry is a child, which ends when standard input does."""
    stopping = False
    child: int | None = None

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        if child is not None:
            os.kill(child, signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    pause_s = _RESTART_PAUSE_S
    while not stopping:
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            _become(options)
        _, status = os.waitpid(child, 0)
        child = None
        if stopping or _is_orphaned():
            return 0
        if time.monotonic() - started > _LONG_LIFE_S:
            pause_s = _RESTART_PAUSE_S
        print(
            f"tailrace: the registry ended ({os.waitstatus_to_exitcode(status)}), and is started again", file=sys.stderr
        )
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _RESTART_PAUSE_MAX_S)
    return 0


def _become(options: argparse.Namespace) -> NoReturn:
    exit_code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        exit_code = _run(options, parent=_STDIN)
    except CommandError as error:
        print(f"tailrace: {error}", file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _is_orphaned() -> bool:
    """Whether standard input has ended: nobody writes to it."""
    import select

    ready, _, _ = select.select([_STDIN], [], [], 0)
    return bool(ready)
