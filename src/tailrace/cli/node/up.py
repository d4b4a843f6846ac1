"""`tailrace up`: a broker in the foreground, from nothing to ready in a third of a second; or a cluster of several.

Prints one line on stdout, `ready: <bootstrap servers>`, once clients can connect, and one more for each app beside it:
`registry: <url>` with `--registry-port`, `console: <url>` with `--console-port`, `gateway: <url>` with
`--gateway-port`. Without `--data` everything lives in a temporary folder, which is removed at the end.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.apps.companions import add_companion_options, check_companions, companions
from tailrace.cli.logs import add_log_options, start_logging
from tailrace.cli.node.machine import BROKERS_MAX, parse_processes

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig

DESCRIPTION = (
    "Start a broker, or a cluster of several, in the foreground; prints `ready: <bootstrap servers>` "
    "once clients can connect. A process of a cluster that dies is started again."
)
EXAMPLES = """\
examples:
  tailrace up                                 on 127.0.0.1:9092, data in a temporary folder
  tailrace up --data ./data --port 9093       keeps its data
  tailrace up --brokers 3 --data ./data       three brokers and three controllers, every topic on three brokers
  tailrace up --processes auto                a broker for each core, every topic on one broker
  tailrace up --host 0.0.0.0 --set advertised.listeners=PLAINTEXT://queue.example:9092
  tailrace up --registry-port 8081 --console-port 9080      with a schema registry and a console beside it
  tailrace up --gateway-port 8082             topics by HTTP, too
  tailrace up --brokers 3 --alerts alerts.toml   tells whom that file names when something is wrong
  tailrace up --secure --data ./data          TLS, an admin user, ACLs; says where its settings are; also a cluster
  tailrace up --data ./data --tier            topics may keep old segments in a folder, or in a bucket
  tailrace up --set log.retention.hours=1 --set num.partitions=4
"""

_ALL_ADDRESSES = ("", "0.0.0.0", "::")  # noqa: S104 (compared; the user asks for it)


def register(parser: argparse.ArgumentParser) -> None:
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--brokers", type=int, metavar="N", help="how many brokers to start (default: 1)")
    sizes.add_argument(
        "--processes",
        metavar="N",
        help="one machine's brokers and one controller, without replicas: a number, or auto for one broker a core",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help="port of the first broker, 0 for a free one; others are above (default: 9092)"
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="M",
        help="port of /metrics and /health; of a cluster M, M+1, ..., controllers first (default: free ones)",
    )
    parser.add_argument("--data", metavar="DIR", help="keep the data here (default: a temporary folder)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any broker setting, by Kafka's name; repeatable",
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="TLS, logins and ACLs: makes certificates and an admin user in the data folder, and says where",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="with --secure: another name or address of this machine, for its certificate; repeatable",
    )
    parser.add_argument(
        "--tier",
        nargs="?",
        const="",
        metavar="URL",
        help="remote storage for topics with remote.storage.enable: s3://BUCKET/PREFIX, gs://, az:// or file:///FOLDER "
        "(default: a folder beside the data)",
    )
    add_companion_options(parser)
    parser.add_argument("--logs", metavar="DIR", help="several brokers: a log file for each here, and not on stderr")
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.brokers is not None and not 1 <= options.brokers <= BROKERS_MAX:
        raise CommandError(f"--brokers {options.brokers}: one machine runs 1 to {BROKERS_MAX} brokers")
    if options.processes is not None:
        options.brokers = parse_processes(options.processes)
    if options.name and not options.secure:
        raise CommandError("--name is for the certificate that --secure makes")
    if options.port is not None and not 0 <= options.port <= 65535:
        raise CommandError(f"--port {options.port}: a port is a number from 0 (a free one) to 65535")
    if options.metrics_port is not None and not 0 <= options.metrics_port <= 65535:
        raise CommandError(f"--metrics-port {options.metrics_port}: a port is a number from 0 (a free one) to 65535")
    check_companions(options)
    settings = _own_settings(options)
    start_logging(options)
    _say_who_may_connect(options)
    with _data_folder(options.data) as folder:
        if options.tier is not None:
            url = options.tier or f"file://{folder}/tier"
            settings = {"remote.log.storage.system.enable": "true", "remote.log.storage.url": url} | settings
        is_cluster = _is_cluster(options, folder)
        if options.secure:
            from tailrace.cli.secure.setup import prepare, tell

            prepare(folder, names=_names(options))
            tell(folder)
        elif os.path.exists(f"{folder}/security/authority.pem"):
            raise CommandError(f"{folder} was made with --secure: add it, else anyone could enter")
        start = _run_cluster if is_cluster else _run_alone
        return start(options, folder, settings)


@contextmanager
def _data_folder(wanted: str | None) -> Iterator[str]:
    if wanted is not None:
        yield os.path.abspath(wanted)
        return
    from tempfile import TemporaryDirectory

    # A broker that was killed leaves nothing to complain about: the folder goes as far as it can.
    with TemporaryDirectory(prefix="tailrace-", ignore_cleanup_errors=True) as folder:
        yield folder


def _own_settings(options: argparse.Namespace) -> dict[str, str]:
    settings = {}
    for word in options.set:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise CommandError(f"--set {word}: expected KEY=VALUE, such as --set log.retention.hours=1")
        settings[name.strip()] = value.strip()
    return settings


def _say_who_may_connect(options: argparse.Namespace) -> None:
    is_local = options.host == "localhost" or options.host.startswith("127.") or options.host == "::1"
    if not is_local and not options.secure and "listener.security.protocol.map" not in " ".join(options.set):
        print(f"tailrace: anyone who reaches {options.host or '*'} may do everything; see --secure", file=sys.stderr)


def _names(options: argparse.Namespace) -> list[str]:
    """By which others reach this machine, besides the loopback ones."""
    names = [*options.name, _advertised_host(options.host)]
    return [name for name in dict.fromkeys(names) if name not in ("localhost", "127.0.0.1", "::1")]


def _advertised_host(host: str) -> str:
    """Clients are told an address to come back to, and cannot connect to "all addresses"."""
    if host not in _ALL_ADDRESSES:
        return host
    from socket import gethostname

    return gethostname()


# --- one broker


def _run_alone(options: argparse.Namespace, folder: str, own: dict[str, str]) -> int:
    config = _config(options, folder, own)
    # Imported after the command line was judged: it brings asyncio and the whole broker.
    from tailrace.cli.node.process import list_metrics, print_ready, run_broker

    if options.secure:
        from tailrace.cli.node.storage import properties_of, store_credentials
        from tailrace.cli.secure.setup import admin_credential

        if properties_of(folder) is None:
            store_credentials(folder, [admin_credential(folder)])

    with companions(options, folder) as (begin, on_stop):

        def tell_ready(bootstrap: str, metrics: Sequence[str]) -> None:
            if metrics:
                list_metrics(folder, {f"broker-{config.node_id}": metrics[0]}, is_told=True)
            print_ready(bootstrap)
            begin(bootstrap)

        return run_broker(config, on_ready=tell_ready, on_stop=on_stop)


def _config(options: argparse.Namespace, folder: str, own: dict[str, str]) -> BrokerConfig:
    from tailrace.broker.single_node import single_node_settings
    from tailrace.model.config import parse_broker_config
    from tailrace.model.errors import KafkaError

    port = 9092 if options.port is None else options.port
    settings = single_node_settings(options.host, port, folder)
    scheme = "HTTPS" if options.secure else "HTTP"
    settings["metrics.listeners"] = f"{scheme}://127.0.0.1:{options.metrics_port or 0}"
    protocol, _, endpoint = settings["listeners"].partition("://")
    if options.secure:
        from tailrace.cli.node.machine.plan import SECURE_LISTENER
        from tailrace.cli.secure.setup import secure_settings

        protocol = SECURE_LISTENER
        settings |= {"listeners": f"{protocol}://{endpoint}"}
        own = secure_settings(folder, own)
    if options.host in _ALL_ADDRESSES:
        settings["advertised.listeners"] = f"{protocol}://{_advertised_host(options.host)}:{port}"
    try:
        return parse_broker_config(settings | own)
    except KafkaError as error:
        raise CommandError(error.message) from None


# --- several


def _is_cluster(options: argparse.Namespace, folder: str) -> bool:
    """By what was asked for, or by what lies in the folder."""
    if os.path.exists(f"{folder}/cluster.json"):
        return True
    if options.brokers in (None, 1):
        return False
    if os.path.exists(f"{folder}/meta.properties"):
        raise CommandError(f"{folder} holds the data of a single broker; choose another folder for a cluster")
    return True


def _run_cluster(options: argparse.Namespace, folder: str, own: dict[str, str]) -> int:
    from tailrace.cli.node.machine.nodes import open_cluster, read_plan
    from tailrace.cli.node.machine.plan import SETTINGS_OF_ONE_NODE

    if refused := sorted(SETTINGS_OF_ONE_NODE & own.keys()):
        raise CommandError(f"--set {refused[0]}: each node of a cluster has its own; `up` chooses it")
    port = options.port
    if port is None:
        port = 0 if read_plan(folder) is not None else 9092
    if options.logs is not None:
        os.makedirs(options.logs, exist_ok=True)
    common = own
    if options.secure:
        from tailrace.cli.secure.setup import secure_cluster_settings

        common = secure_cluster_settings(folder, own)
    cluster = open_cluster(
        folder,
        common,
        brokers=options.brokers,
        is_replicated=options.processes is None,
        host=options.host,
        advertised_host=_advertised_host(options.host),
        port=port,
        metrics_port=options.metrics_port or 0,
        is_secure=options.secure,
    )
    # The settings are judged before anything starts; the nodes read them again.
    for node in cluster.node_plans():
        cluster.config_of(node)
    from tailrace.cli.node.machine.supervisor import Supervisor
    from tailrace.cli.node.process import print_ready

    with companions(options, folder) as (begin, on_stop):

        def tell_ready(bootstrap: str) -> None:
            print_ready(bootstrap)
            begin(bootstrap)

        return Supervisor(cluster, on_ready=tell_ready, on_stop=on_stop, logs=options.logs).run()
