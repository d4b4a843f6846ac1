"""`tailrace broker`: one production node in the foreground, settings in a file; or several that share a machine.

Unlike `up` it never makes a data folder its own: an empty one may be a disk that was not mounted, and a broker that
starts there would answer with no data at all. `tailrace format` is the explicit step.
"""

from __future__ import annotations

import argparse

from tailrace.cli import CommandError
from tailrace.cli.logs import add_log_options, start_logging
from tailrace.cli.node.machine import PROCESSES_HELP, parse_processes

DESCRIPTION = (
    "Start one node in the foreground, with the settings of a file; with --processes several brokers that share the "
    "machine, and one that dies is started again."
)
EXAMPLES = """\
examples:
  tailrace format --config node.toml && tailrace broker --config node.toml
  tailrace format --config node.toml --processes 4 && tailrace broker --config node.toml --processes 4

where node.toml holds, with Kafka's own names:
  node.id = 1
  listeners = "PLAINTEXT://127.0.0.1:9092"
  log.dirs = ["/var/lib/tailrace"]

and for one broker of a cluster whose controllers have their own hosts:
  node.id = 1
  process.roles = ["broker"]
  controller.quorum.bootstrap.servers = ["one:9093", "two:9093", "three:9093"]
  controller.listener.names = ["CONTROLLER"]
  listeners = "PLAINTEXT://:9092"
  advertised.listeners = "PLAINTEXT://queue-1.example:9092"
  log.dirs = ["/var/lib/tailrace"]
"""


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        required=True,
        metavar="FILE",
        help="TOML whose keys are Kafka's settings, or a .properties file of Kafka",
    )
    parser.add_argument("--processes", default="1", metavar="N", help=PROCESSES_HELP)
    parser.add_argument("--logs", metavar="DIR", help="with --processes: a log file for each here, and not on stderr")
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tailrace.cli.node.machine.unit import configs_of
    from tailrace.cli.node.settings_file import read_given
    from tailrace.cli.node.storage import unformatted_folders

    processes = parse_processes(options.processes)
    configs = configs_of(read_given(options.config)[0], processes)
    if unformatted := [folder for config in configs for folder in unformatted_folders(config)]:
        also = f" --processes {processes} --ignore-formatted" if processes > 1 else ""
        raise CommandError(
            f"{unformatted[0]} holds no meta.properties, so it was never formatted, or its disk is not mounted; "
            f"if it is new, run: tailrace format --config {options.config}{also}"
        )
    start_logging(options)
    if processes > 1:
        return _run_unit(options, processes)
    from tailrace.cli.node.process import run_broker

    return run_broker(configs[0])


def _run_unit(options: argparse.Namespace, processes: int) -> int:
    import os

    from tailrace.cli.node.machine.supervisor import Supervisor
    from tailrace.cli.node.machine.unit import Unit
    from tailrace.cli.node.process import print_ready
    from tailrace.cli.node.settings_file import read_given

    if options.logs is not None:
        os.makedirs(options.logs, exist_ok=True)
    unit = Unit(lambda: read_given(options.config)[0], processes)
    return Supervisor(unit, on_ready=print_ready, logs=options.logs).run()
